"""`tuner top [DIR...]`: the runs of this machine or of a cluster, while they go on."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cluster.app.console.flags import RUN, address_flag, debug_flag, json_flag
from cluster.app.console.output import nothing_on_stdout, print_json
from tuner.errors import UsageError
from tuner.run_location import RunLocation

if TYPE_CHECKING:
    from rich.console import Console, Group

    from cluster.app.driver.run_summaries import Looking
    from tuner.report.summary import RunSummary

_END_S = 3.0
_ONCE_S = 30.0
"""The time that runs have to be read for the first time."""
_WIDTH = 160
"""Columns where there is no terminal."""


@click.command(short_help="Watch several runs at once.")
@click.argument("runs", metavar="[DIR...]", nargs=-1, type=RUN)
@address_flag
@click.option("--once", is_flag=True, help="Print the table once, and end.")
@json_flag
@debug_flag
def top(runs: tuple[RunLocation, ...], address: str, once: bool, as_json: bool) -> int:
    """Watch the runs in DIR..., or without any all that this machine works on, and those in the
    current folder and its runs/; with --address the searches on that cluster. The tasks too where
    there is one run. `q` or Ctrl-C ends it, and disturbs no run.
    """
    from rich.console import Console

    from cluster.app.console.top_table import in_order, top_picture, why_unreadable
    from cluster.ray_workers.ray_cluster import is_embedded
    from tuner.report.summary import summary_json

    on_cluster = not runs and not is_embedded(address)
    if runs and address != "auto":
        raise UsageError("tuner top takes runs or --address, not both")
    if address == "local":
        raise UsageError("--address: name the cluster as HOST:PORT")
    console = Console()
    live = console.is_terminal and not console.is_dumb_terminal and sys.stdout.isatty()
    with nothing_on_stdout(as_json), _looking(runs, address if on_cluster else "") as looking:
        found = _first(looking)
        nothing = bool(runs) and not any(summary.readable for summary in found)
        if live and not (once or as_json or nothing):
            _show_live(console, looking)
            return 0
    if as_json:
        print_json({"runs": [summary_json(summary) for summary in in_order(found)]})
    elif nothing:
        for summary in in_order(found):
            click.echo(f"tuner: {why_unreadable(summary)}", err=True)
    else:
        width = console.width if console.is_terminal else _WIDTH
        picture = top_picture(found, width=width, rows=None)
        Console(width=width).print(picture)
    return int(nothing)


@contextlib.contextmanager
def _looking(runs: Sequence[RunLocation], address: str) -> Iterator[list[Looking]]:
    """Those who look, at work.

    Args:
        address: of a cluster; empty for this machine.

    Raises:
        TunerError: no cluster answers.
    """
    from cluster.app.driver.run_summaries import Looking, Runs, RunsHere, find_runs, runs_at_work

    with contextlib.ExitStack() as stack:
        looking: list[Looking] = []
        stack.callback(_end, looking)

        def look(source: Callable[[float], Sequence[RunSummary]], name: str) -> None:
            looking.append(Looking(source, name))

        if address:
            from cluster.app.driver.run_summaries import searches_there
            from cluster.ray_workers.ray_cluster import ray_cluster

            stack.enter_context(ray_cluster(address))
            look(searches_there, address)
        elif runs:
            for location in runs:
                look(Runs(find_runs(location)), str(location))
        else:
            look(RunsHere(Path(), runs_at_work), "this machine")
        yield looking


def _end(looking: Sequence[Looking]) -> None:
    """Let all of them end, within one deadline: a disk may never answer."""
    for one in looking:
        one.stop()
    until_s = time.monotonic() + _END_S
    for one in looking:
        one.join(until_s - time.monotonic())


def _first(looking: Sequence[Looking]) -> list[RunSummary]:
    """What is seen first; waits for it, but not for ever."""
    until_s = time.monotonic() + _ONCE_S
    for one in looking:
        one.wait(max(0.0, until_s - time.monotonic()))
    return _all(looking)


def _all(looking: Sequence[Looking]) -> list[RunSummary]:
    return [summary for one in looking for summary in one.last()]


def _show_live(console: Console, looking: Sequence[Looking]) -> None:
    from cluster.app.console.live_screen import keys, show_live
    from cluster.app.console.top_table import top_picture

    def picture() -> Group:
        size = console.size
        return top_picture(_all(looking), width=size.width, rows=size.height - 1)

    with contextlib.suppress(KeyboardInterrupt), keys() as ended:
        show_live(console, picture, ended)
