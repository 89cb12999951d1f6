"""`tuner diff A B`: what became better or worse from one run to another."""

from __future__ import annotations

import click

from cluster.app.commands.runs import open_run
from cluster.app.console.flags import RUN, debug_flag, json_flag
from cluster.app.console.output import nothing_on_stdout, print_json, print_table
from tuner.run_location import RunLocation


@click.command(short_help="What became better or worse between runs.")
@click.argument("before", metavar="A", type=RUN)
@click.argument("after", metavar="B", type=RUN)
@json_flag
@debug_flag
def diff(before: RunLocation, after: RunLocation, as_json: bool) -> None:
    """Compare the winners of two runs, task by task: which are faster or slower in B by more than
    noise, and what changed in their schedules."""
    from cluster.app.driver.kernel_sets import read_latencies_s
    from tuner.report.diff import diff as compared
    from tuner.report.diff import diff_json

    with (
        nothing_on_stdout(as_json),
        open_run(before, wrong_too=True) as (was, first),
        open_run(after, wrong_too=True) as (now, second),
    ):
        found = compared(
            first,
            second,
            read_latencies_s(first, was.max_kernels),
            read_latencies_s(second, now.max_kernels),
        )
    if as_json:
        print_json(diff_json(found))
        return
    from cluster.app.console.terminal import latency, ratio

    rows = [
        (
            row.task.name,
            f"{row.task.weight:g}",
            latency(row.before_s),
            latency(row.after_s),
            ratio(row.before_s / row.after_s if row.before_s and row.after_s else None),
            row.verdict,
        )
        for row in found.tasks
    ]
    print_table("task", "weight", "A", "B", "speed-up", "beyond noise", rows=rows)
    for row in found.tasks:
        if row.changes:
            click.echo(f"{row.task.name}: {'; '.join(row.changes)}")
    if found.sums_s is not None:
        was_s, now_s = found.sums_s
        click.echo(
            f"all that have a time in both: {latency(was_s)} → {latency(now_s)}, "
            f"{ratio(was_s / now_s)}; times within {found.noise - 1:.0%} of each "
            "other are taken for the same"
        )
    else:
        click.echo("no task has a time in both")
    for note in found.notes:
        click.echo(f"mind that they were {note}")
