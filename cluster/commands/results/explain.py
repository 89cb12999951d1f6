"""`tuner explain DIR [TASK]`: what the best schedules do, and what speaks for and against them."""

from __future__ import annotations

from typing import Any

import click

from cluster.commands.runs import opened
from cluster.console.flags import TASK, debug_flag, json_flag, run_argument
from cluster.console.output import nothing_on_stdout, print_json
from tuner.candidate import without_version
from tuner.run_location import RunLocation


@click.command(short_help="What the best schedules do, in words.")
@run_argument
@click.argument("task", metavar="[TASK]", required=False, type=TASK)
@json_flag
@debug_flag
def explain(run: RunLocation, task: str | None, as_json: bool) -> None:
    """Say what the best schedule of each task in DIR does, or that of TASK, by its name or key.

    The loops around its heaviest block, how they fill cores and vectors, what they move through the
    caches, and what speaks against it. Tasks with symbolic dimensions are left out: `tuner best`
    shows their kernels.
    """
    from cluster.driver.best_schedules import best_explained

    with nothing_on_stdout(as_json), opened(run) as (_, store):
        rows = best_explained(store, task)
    if as_json:
        print_json({"tasks": rows})
    else:
        for row in rows:
            _print(row)


def _print(row: dict[str, Any]) -> None:
    from cluster.console.terminal import latency, ratio

    latency_s = row["latency_ms"] / 1e3
    gain = f", {ratio(row['default_ms'] / row['latency_ms'])}" if row["default_ms"] else ""
    speed = f", {row['gflops']:.1f} GFLOP/s" if row["gflops"] else ""
    click.echo(f"# {row['name']}: {latency(latency_s)}{gain} of its default schedule{speed}")
    predicted = ""
    if row["predicted_ms"] is not None:
        predicted = f", which predicted {latency(row['predicted_ms'] / 1e3)}"
    click.echo(f"  space    {without_version(row['space'])}{predicted}")
    click.echo(f"  loops    {' > '.join(map(_loop, row['loops']))}")
    click.echo(
        f"  cores    {row['parallel_steps']} parallel steps on {row['cores']}: "
        f"{row['busy']:.0%} busy"
    )
    click.echo(f"  vectors  of {row['lanes']}" if row["lanes"] > 1 else "  vectors  none")
    for cache in row["caches"]:
        moved = cache["moved_bytes"]
        click.echo(
            f"  {cache['cache']:8} {_kib(cache['cache_bytes'])}: the innermost "
            f"{cache['loops_inside']} loops' {_kib(cache['inside_bytes'])} fit; {_kib(moved)} are "
            f"moved into it, {moved / latency_s / 1e9:.1f} GB/s"
        )
    for remark in row["remarks"]:
        click.echo(f"  but      {remark}")
    click.echo()


def _loop(loop: dict[str, Any]) -> str:
    words = [str(loop["extent"])]
    if loop["kind"] != "serial":
        words.append(loop["kind"])
    if loop["reduces"]:
        words.append("(sum)")
    return " ".join(words)


def _kib(count: int) -> str:
    return f"{count / (1 << 20):.3g} MiB" if count >= 1 << 20 else f"{count / (1 << 10):.3g} KiB"
