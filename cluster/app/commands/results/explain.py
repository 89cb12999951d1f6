"""`tuner explain DIR [TASK]`: what the best schedules do, and what speaks for and against them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from cluster.app.commands.runs import open_run
from cluster.app.console.flags import TASK, debug_flag, json_flag, run_argument
from cluster.app.console.output import nothing_on_stdout, print_json
from tuner.candidate import display_space
from tuner.errors import TunerError
from tuner.run_location import RunLocation

if TYPE_CHECKING:
    from cluster.app.driver.best_schedules import Explained

_NAMED = 3
"""Tasks that are named of those that are left out for one reason."""


@click.command(short_help="What the best schedules do, in words.")
@run_argument
@click.argument("task", metavar="[TASK]", required=False, type=TASK)
@json_flag
@debug_flag
def explain(run: RunLocation, task: str | None, as_json: bool) -> None:
    """Say what the best schedule of each task in DIR does, or that of TASK, by its name or key.

    The loops around its heaviest block, how they fill cores and vectors, what they move through the
    caches, what the compiler of a device says, and what speaks against it. Tasks with symbolic
    dimensions are left out: `tuner best` shows their kernels.
    """
    from cluster.app.driver.best_schedules import best_explained
    from tuner.view.as_json import precision_json

    with nothing_on_stdout(as_json), open_run(run) as (manifest, store):
        said = best_explained(store, task)
    left_out = list(_explain_left_out(said, task))
    if task is not None and not said.rows:
        raise TunerError(left_out[0])
    if as_json:
        print_json({"precision": precision_json(manifest.precision), "tasks": said.rows})
        return
    for row in said.rows:
        _print(row)
    for line in left_out:
        click.echo(line)


def _explain_left_out(said: Explained, task: str | None) -> Iterator[str]:
    """A line for each reason to leave tasks out; one at least where all are left out."""
    from cluster.app.console.terminal import list_names

    if names := said.symbolic:
        has, its = ("has", "its") if len(names) == 1 else ("have", "their")
        named = list_names(names, _NAMED)
        yield f"{named} {has} symbolic dimensions: `tuner best` shows {its} kernels"
    if names := said.without_loops:
        yield f"{list_names(names, _NAMED)}: no block of the best schedule has loops"
    if task is None and not (said.rows or said.symbolic or said.without_loops):
        yield "nothing was measured yet"
    elif names := said.unmeasured:
        yield f"{list_names(names, _NAMED)}: nothing was measured yet"


def _print(row: dict[str, Any]) -> None:
    from cluster.app.console.terminal import latency

    latency_s = row["latency_ms"] / 1e3
    speed = f", {row['gflops']:.1f} GFLOP/s" if row["gflops"] else ""
    click.echo(f"# {row['name']}: {latency(latency_s)}{_beside_default(row)}{speed}")
    predicted = ""
    if row["predicted_ms"] is not None:
        predicted = f", which predicted {latency(row['predicted_ms'] / 1e3)}"
    click.echo(f"  space    {display_space(row['space'])}{predicted}")
    if row["settings"]:
        click.echo(f"  settings {' '.join(f'{k}={v}' for k, v in row['settings'].items())}")
    for kernel in row["kernels"]:
        _print_kernel(kernel)
    if row["loops"]:
        _print_loops(row)
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


def _print_kernel(kernel: dict[str, Any]) -> None:
    from tuner.view.words import amount

    click.echo(
        f"  compiled {kernel['name']}: {kernel['registers']} registers in each of "
        f"{kernel['threads']} threads, {kernel['spilled_bytes']} bytes spilled"
    )
    if kernel["resident_blocks"] is not None:
        click.echo(
            f"           {_kib(kernel['shared_bytes'])} of shared memory in a block; "
            f"{amount(kernel['resident_blocks'], 'block')} on a multiprocessor, "
            f"{kernel['occupancy']:.0%} of its threads"
        )
    if (mix := kernel["mix"]) is not None:
        total = mix["instructions"]
        counts = sorted(mix["counts"].items(), key=lambda item: -item[1])
        told = [
            amount(total, "instruction"),
            *(f"{n} {name} ({n / total:.0%})" for name, n in counts),
        ]
        where = "innermost loop" if mix["in_loop"] else "no loop with work"
        click.echo(f"           {where}: {', '.join(told)}")


def _print_loops(row: dict[str, Any]) -> None:
    click.echo(f"  loops    {' > '.join(map(_loop, row['loops']))}")
    click.echo(
        f"  cores    {row['parallel_steps']} parallel steps on {row['cores']}: "
        f"{row['busy']:.0%} busy"
    )
    click.echo(f"  vectors  of {row['lanes']}" if row["lanes"] > 1 else "  vectors  none")


def _beside_default(row: dict[str, Any]) -> str:
    """How the best schedule compares with the default one, which may itself be the best."""
    from cluster.app.console.terminal import ratio

    if not row["default_ms"]:
        return " (its default schedule has no time)"
    if row["default_ms"] == row["latency_ms"]:
        return " by its default schedule"
    return f", {ratio(row['default_ms'] / row['latency_ms'])} of its default schedule"


def _loop(loop: dict[str, Any]) -> str:
    words = [str(loop["extent"])]
    if loop["kind"] != "serial":
        words.append(loop["kind"])
    if loop["reduces"]:
        words.append("(sum)")
    return " ".join(words)


def _kib(count: int) -> str:
    return f"{count / (1 << 20):.3g} MiB" if count >= 1 << 20 else f"{count / (1 << 10):.3g} KiB"
