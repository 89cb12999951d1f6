"""`tuner reproduce DIR TASK`: a file that rebuilds a kernel and times it, with TVM alone."""

from __future__ import annotations

import re
from pathlib import Path

import click

from cluster.app.commands.runs import open_run
from cluster.app.console import parse
from cluster.app.console.flags import PATH, TASK, debug_flag, run_argument
from tuner.run_location import RunLocation


@click.command(short_help="A file that rebuilds a kernel with TVM alone.")
@run_argument
@click.argument("task", metavar="TASK", type=TASK)
@click.option(
    "-o",
    "--out",
    metavar="FILE.py",
    type=PATH,
    help="Where to write it. Default: reproduce_TASK.py, here.",
)
@click.option(
    "--shape",
    "shapes",
    metavar="T=16",
    multiple=True,
    help="Size of a symbolic dimension of the task. Default: some shapes that were measured.",
)
@debug_flag
def reproduce(run: RunLocation, task: str, out: Path | None, shapes: tuple[str, ...]) -> None:
    """Write one Python file that rebuilds the best kernel of TASK, compares its output with the
    unscheduled program's and times it. It needs TVM and nothing of this tuner."""
    sizes = parse.distinct(shapes, parse.size)
    from cluster.app.driver.trust.reproduce import reproduce as written
    from tuner.files.atomic import name_unwritable, output_file

    with open_run(run) as (manifest, store):
        text = written(manifest, store, run, task, sizes)
    path = out or Path(f"reproduce_{re.sub(r'[^A-Za-z0-9_]', '_', task)}.py")
    with name_unwritable(path), output_file(path) as file:
        file.write(text)
    click.echo(f"wrote {path}: run it with `python {path}` wherever TVM is installed")
