"""`tuner best DIR`: the best schedule of each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from cluster.app.commands.runs import open_run
from cluster.app.console.flags import TASK, debug_flag, json_flag, run_argument
from cluster.app.console.output import nothing_on_stdout, print_json, print_table
from tuner.candidate import display_space
from tuner.run_location import RunLocation

if TYPE_CHECKING:
    from cluster.app.driver.best_schedules import BestSchedule

_SHAPES_SHOWN = 24


@click.command(short_help="The best schedule of each task.")
@run_argument
@click.option("--task", metavar="NAME", type=TASK, help="Only the task of this name or key.")
@json_flag
@debug_flag
def best(run: RunLocation, task: str | None, as_json: bool) -> None:
    """Show the best schedule of each task in DIR: latency, GFLOP/s, trace as Python.

    A task with symbolic dimensions has a few kernels, and a tree that says which shape takes which.
    """
    from cluster.app.console.closing_text import explain_toolchains
    from cluster.app.driver.best_schedules import best_schedules
    from tuner.view.folds import view_toolchains
    from tuner.view.run_view import RunView

    with nothing_on_stdout(as_json), open_run(run) as (manifest, store):
        schedules = best_schedules(store, task, manifest.max_kernels)
        used = view_toolchains(store, store.tasks())
    if as_json:
        print_json({"tasks": [schedule.to_json() for schedule in schedules]})
        return
    _print(schedules)
    if len(used) > 1:
        winners = tuple(schedule.task for schedule in schedules)
        click.echo(explain_toolchains(RunView(tasks=winners, toolchains=used)))


def _print_set(name: str, told: dict[str, Any]) -> None:
    """A kernel set: its kernels, its tree, what each shape takes, what fewer kernels would cost."""
    from tuner.dynamic.shapes import shape_text

    for number, trace in enumerate(told["traces"]):
        click.echo(f"# {name}, kernel {number}\n{trace}\n")
    click.echo(f"# {name}: which shape takes which kernel\n{told['tree']}\n")
    lines = [
        (
            shape_text(tuple(shape["shape"].items())),
            f"{shape['kernel']}{', specialised' if shape['closed'] else ''}",
            f"{shape['latency_ms']:.4g} ms{'' if shape['measured'] else ' (predicted)'}",
            "-" if shape["padding"] is None else f"{shape['padding']:.1%}",
            _share(shape["guard_ms"], shape["latency_ms"]),
            f"{shape['latency_ms'] / shape['best_ms']:.3f}",
        )
        for shape in shapes_to_show(told["shapes"])
    ]
    heads = ("shape", "kernel", "latency", "beyond it", "guard", "of its best kernel")
    print_table(*heads, rows=lines)
    curve = loss_curve(told["losses"], len(told["kernels"]))
    click.echo(f"\nlatency over each shape's best kernel, by number of kernels: {curve}")
    click.echo(f"with the tree: {told['loss']:.3f}")
    if told["prediction_error"] is not None:
        click.echo(
            f"predictions for shapes that were not measured: off by "
            f"{told['prediction_error']:.1%} on average ({told['predictions_judged']} pairs)"
        )
    click.echo()


def loss_curve(losses: Sequence[float], taken: int) -> str:
    """Losses by number of kernels, with a mark at the number that was taken."""
    return ", ".join(
        f"{number}: {loss:.3f}{' (taken)' if number == taken else ''}"
        for number, loss in enumerate(losses, start=1)
    )


def _share(part: float | None, whole: float) -> str:
    return "-" if part is None else f"{part / whole:.1%}"


def shapes_to_show(shapes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """At most as many shapes as one looks at: those that were measured, and of the others some
    that are spread over all."""
    measured = [place for place, shape in enumerate(shapes) if shape["measured"]][:_SHAPES_SHOWN]
    others = sorted(set(range(len(shapes))) - set(measured))
    room = _SHAPES_SHOWN - len(measured)
    shown = others[:: -(-len(others) // room)] if room and others else []
    return [shapes[place] for place in sorted((*measured, *shown))]


def _print(schedules: Sequence[BestSchedule]) -> None:
    from cluster.app.console.terminal import name_columns, render_cells

    for best in schedules:
        if best.trace is not None:
            trace = best.trace or "# the default schedule: no instructions"
            click.echo(f"# {best.task.name}\n{trace}\n")
        if best.kernel_set is not None:
            _print_set(best.task.name, best.kernel_set)
    lines = []
    for task in (best.task for best in schedules):
        gflops = "-" if task.gflops is None else f"{task.gflops:.1f}"
        lines.append(
            (task.name, *render_cells(task)[:-1], gflops, display_space(task.space or "-"))
        )
    heads = ("task", *name_columns(settled=True)[:-1], "GFLOP/s", "space")
    print_table(*heads, rows=lines)
