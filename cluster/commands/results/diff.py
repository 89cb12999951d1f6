"""`tuner diff A B`: what became better or worse from one run to another."""

from __future__ import annotations

import click

from cluster.commands.runs import opened
from cluster.console.flags import RUN, debug_flag, json_flag
from cluster.console.output import nothing_on_stdout, print_json, print_table
from tuner.run_location import RunLocation


@click.command(short_help="What became better or worse between runs.")
@click.argument("before", metavar="A", type=RUN)
@click.argument("after", metavar="B", type=RUN)
@json_flag
@debug_flag
def diff(before: RunLocation, after: RunLocation, as_json: bool) -> None:
    """Compare the winners of two runs, task by task: which are faster or slower in B by more than
    noise, and what changed in their schedules."""
    from cluster.driver.kernel_sets import chosen_s
    from tuner.report.diff import diff as compared

    with (
        nothing_on_stdout(as_json),
        opened(before, wrong_too=True) as (was, first),
        opened(after, wrong_too=True) as (now, second),
    ):
        found = compared(
            first,
            second,
            chosen_s(first, was.max_kernels),
            chosen_s(second, now.max_kernels),
        )
    if as_json:
        print_json(found.to_json())
        return
    from cluster.console.terminal import latency, ratio

    rows = [
        (
            task.name,
            f"{task.weight:g}",
            latency(task.before_s),
            latency(task.after_s),
            ratio(task.before_s / task.after_s if task.before_s and task.after_s else None),
            task.verdict,
        )
        for task in found.tasks
    ]
    print_table("task", "weight", "A", "B", "speed-up", "beyond noise", rows=rows)
    for task in found.tasks:
        if task.changes:
            click.echo(f"{task.name}: {'; '.join(task.changes)}")
    if found.before_s and found.after_s:
        click.echo(
            f"all that have a time in both: {latency(found.before_s)} → {latency(found.after_s)}, "
            f"{ratio(found.before_s / found.after_s)}; times within {found.noise - 1:.0%} of each "
            "other are taken for the same"
        )
    else:
        click.echo("no task has a time in both")
    for note in found.notes:
        click.echo(f"mind that they were {note}")
