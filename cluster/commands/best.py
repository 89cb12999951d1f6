"""`tuner best DIR`: the best schedule of each task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cluster.commands.flags import TEXT, debug_flag, json_flag, run_argument
from cluster.commands.output import nothing_on_stdout, print_json, print_table
from cluster.commands.runs import opened_store

if TYPE_CHECKING:
    from tuner.store import RecordStore


@click.command(short_help="The best schedule of each task.")
@run_argument
@click.option("--task", metavar="NAME", type=TEXT, help="Only the task of this name or key.")
@json_flag
@debug_flag
def best(run: Path, task: str | None, as_json: bool) -> None:
    """Show the best schedule of each task in DIR: latency, GFLOP/s, trace as Python."""
    with nothing_on_stdout(as_json), opened_store(run) as store:
        rows = best_with_traces(store, task)
    if as_json:
        print_json({"tasks": rows})
    else:
        _print(rows)


def best_with_traces(store: RecordStore, task: str | None) -> list[dict[str, Any]]:
    """The rows of `tuner.report.best_report`, each with the winner's `trace` as Python text.

    Raises:
        TunerError: there is no such task.
    """
    from tuner.report import best_report, choose_best

    report = best_report(store, task)
    known = {t.name: t for t in store.tasks()}
    rows = []
    for row in report["tasks"]:
        found = known[row["name"]]
        winner = choose_best(store, found.key)
        trace = None
        if winner is not None:
            from spaces.realize import trace_text

            trace = trace_text(found, winner.trial.candidate)
        rows.append({**row, "trace": trace})
    return rows


def _print(rows: list[dict[str, Any]]) -> None:
    from cluster.terminal import latency, ratio

    for row in rows:
        if row["trace"] is not None:
            trace = row["trace"] or "# the default schedule: no instructions"
            click.echo(f"# {row['name']}\n{trace}\n")
    lines = []
    for row in rows:
        default_ms, latency_ms = row["default_ms"], row["latency_ms"]
        lines.append(
            (
                row["name"],
                f"{row['weight']:g}",
                str(row["trials"]),
                latency(None if default_ms is None else default_ms / 1e3),
                latency(None if latency_ms is None else latency_ms / 1e3),
                ratio(default_ms / latency_ms if default_ms and latency_ms else None),
                "-" if row["gflops"] is None else f"{row['gflops']:.1f}",
            )
        )
    print_table("task", "weight", "trials", "default", "best", "speed-up", "GFLOP/s", rows=lines)
