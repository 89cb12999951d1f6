"""`tuner status DIR`: how a run stands, while it runs and afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cluster.commands.runs import opened
from cluster.console.flags import debug_flag, json_flag, run_argument
from cluster.console.output import print_json, print_table
from tuner.candidate import shown_space
from tuner.run_location import RunLocation

if TYPE_CHECKING:
    from tuner.report.report import StatusReport
    from tuner.report.spaces import SpaceStatus

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
    from cluster.driver.kernel_sets import chosen_s
    from tuner.report.report import status_report

    with opened(run, wrong_too=True) as (manifest, store):
        # Choosing kernels takes a while, which is not to be taken from a run that measures.
        ended = all(span.ended_s is not None for span in store.sessions()[-1:])
        known = chosen_s(store, manifest.max_kernels) if ended else {}
        report = status_report(store, known)
    if as_json:
        print_json(report)
    else:
        _print(report)


def _print(report: StatusReport) -> None:
    from cluster.console.terminal import duration, heading, latency, ratio, utilisation
    from tuner.report.words import amount, seconds_of

    rows = []
    for task in report["tasks"]:
        default_ms, best_ms = task["default_ms"], task["best_ms"]
        rows.append(
            (
                task["name"],
                f"{task['weight']:g}",
                str(task["trials"]),
                latency(seconds_of(default_ms)),
                latency(seconds_of(best_ms)),
                ratio(default_ms / best_ms if default_ms and best_ms else None),
                by_kind(task["failures"]),
            )
        )
    best = heading(settled=report["settled"])
    print_table("task", "weight", "trials", "default", best, "speed-up", "failed", rows=rows)
    if len(report["spaces"]) > 1:
        click.echo()
        print_spaces(report["spaces"])
        click.echo()
    cut = report["censored"]
    click.echo(
        f"{amount(report['trials'], 'trial')} in {duration(report['elapsed_s'])}, "
        f"{report['trials_per_s']:.1f}/s; failed: {by_kind(report['failures']) or 'none'}"
        f"{f'; {cut} cut off' if cut else ''}"
    )
    if used := utilisation(report["utilisation"]):
        click.echo(used)
    _print_mixed(report)


def _print_mixed(report: StatusReport) -> None:
    """Mark a run whose times were taken with several toolchains."""
    from cluster.console.closing_text import mixed_text

    used = report["toolchains"]
    if len(used) > 1:
        stale = [name for row in used[:-1] for name in row["won"]]
        click.echo(mixed_text(len(used), used[-1]["toolchain"], stale))


def print_spaces(spaces: list[SpaceStatus]) -> None:
    """What came of each design space, as a table."""
    from cluster.console.terminal import latency, listed
    from tuner.report.words import seconds_of

    rows = [
        (
            shown_space(space["space"]),
            _number(space["points"]),
            str(space["explored"]),
            str(space["trials"]),
            str(space["failed"]),
            latency(seconds_of(space["best_ms"])),
            listed(space["won"], _NAMED) or "-",
        )
        for space in spaces
    ]
    print_table(
        "space",
        "points",
        "explored",
        "trials",
        "failed",
        "best in search",
        "fastest for",
        rows=rows,
    )


def _number(points: int | None) -> str:
    if points is None:
        return "-"
    return str(points) if points < _WRITTEN_OUT else f"{float(points):.1e}"


def by_kind(failures: dict[str, int]) -> str:
    """Failures as text, the most frequent kind first."""
    ordered = sorted(failures.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in ordered)
