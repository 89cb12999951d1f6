"""`tuner status DIR`: how a run stands, while it runs and afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cluster.app.commands.runs import open_run
from cluster.app.console.flags import debug_flag, json_flag, run_argument
from cluster.app.console.output import print_json, print_table
from tuner.candidate import display_space
from tuner.record import Status
from tuner.run_location import RunLocation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.view.run_view import RunView, SpaceView

_NAMED = 3
"""Tasks that are named for each space."""
_WRITTEN_OUT = 1_000_000
"""Numbers of points from here on are given by their magnitude."""


@click.command(short_help="How a run stands.")
@run_argument
@json_flag
@debug_flag
def status(run: RunLocation, as_json: bool) -> None:
    """Show the tasks of the run in DIR: trials, failures by kind, best latency so far."""
    from cluster.app.driver.kernel_sets import read_latencies_s
    from tuner.view.as_json import status_json
    from tuner.view.folds import view_run

    with open_run(run, wrong_too=True) as (manifest, store):
        # Choosing kernels takes a while, which is not to be taken from a run that measures.
        ended = all(span.ended_s is not None for span in store.sessions()[-1:])
        known = read_latencies_s(store, manifest.max_kernels) if ended else {}
        view = view_run(store, known)
    if as_json:
        print_json(status_json(view, manifest.precision))
    else:
        _print(view)


def _print(run: RunView) -> None:
    from cluster.app.console.closing_text import explain_toolchains
    from cluster.app.console.terminal import (
        duration,
        name_columns,
        render_cells,
        tell_failures,
        utilisation,
    )
    from tuner.view.words import amount

    rows = [
        (task.name, *render_cells(task)[:-1], tell_failures(task.failures)) for task in run.tasks
    ]
    print_table("task", *name_columns(settled=run.settled), rows=rows)
    if len(run.spaces) > 1:
        click.echo()
        print_spaces(run.spaces)
        click.echo()
    cut = run.statuses.get(Status.CENSORED, 0)
    click.echo(
        f"{amount(run.trials, 'trial')} in {duration(run.elapsed_s)}, "
        f"{run.trials_per_s:.1f}/s; failed: {tell_failures(run.failures) or 'none'}"
        f"{f'; {cut} cut off' if cut else ''}"
    )
    if used := utilisation(run.utilisation):
        click.echo(used)
    if len(run.toolchains) > 1:
        click.echo(explain_toolchains(run))


def print_spaces(spaces: Sequence[SpaceView]) -> None:
    """What came of each design space, as a table."""
    from cluster.app.console.terminal import latency, list_names

    rows = [
        (
            display_space(space.space),
            _number(space.points),
            str(space.explored),
            str(space.trials),
            str(space.failed),
            latency(space.best_s),
            list_names(space.won, _NAMED) or "-",
        )
        for space in spaces
    ]
    heads = ("space", "points", "explored", "trials", "failed", "best in search", "fastest for")
    print_table(*heads, rows=rows)


def _number(points: int | None) -> str:
    if points is None:
        return "-"
    return str(points) if points < _WRITTEN_OUT else f"{float(points):.1e}"
