"""`tuner bench DIR`: what tuning gained on the whole model."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cluster.app.commands.runs import folder_of
from cluster.app.console import parse
from cluster.app.console.flags import debug_flag, json_flag, run_argument
from cluster.app.console.layer_flags import library_flag
from cluster.app.console.output import nothing_on_stdout, plain, print_json, print_table
from tuner.run_location import RunLocation

_BUSY = 0.5
"""The spread of one side from which on a median says little."""


@click.command(short_help="Whole-model latency, untuned and tuned.")
@run_argument
@click.option(
    "--dim",
    "dims",
    metavar="T=5,43",
    multiple=True,
    help="Sizes of a symbolic dimension. Default: some of those it was tuned for.",
)
@library_flag
@json_flag
@debug_flag
def bench(
    run: RunLocation, dims: tuple[str, ...], libraries: tuple[str, ...], as_json: bool
) -> None:
    """Time the model of DIR untuned, tuned and in onnxruntime, and compare the outputs."""
    with nothing_on_stdout(as_json):
        from cluster.app.driver.export import bench as measure

        folder = folder_of(run, model=True)
        sizes = parse.distinct(dims, parse.dimension)
        report = measure(folder, dims=sizes, libraries=libraries)
        _keep(folder, report)
    if as_json:
        print_json(report)
        return
    for shape in report["shapes"] or [report]:
        if shape["shape"]:
            click.echo(", ".join(f"{name}={size}" for name, size in shape["shape"].items()))
        _print(shape)
    from tuner.tracking.tracker import open_command

    command = open_command(folder, os.environ.get("MLFLOW_TRACKING_URI", ""))
    click.echo(f"The record of the search: {command}")


def _keep(folder: Path, report: Mapping[str, Any]) -> None:
    """Keep the result for the page that shows the run; a folder that refuses it keeps none."""
    from tuner.report.bench import keep_bench
    from tuner.runs.folder import RunFolder

    shapes = [*report["shapes"]] or [{**report, "shapes": []}]
    with contextlib.suppress(OSError):
        keep_bench(RunFolder(folder).bench, [plain(shape) for shape in shapes], time.time())


def _print(report: Mapping[str, Any]) -> None:
    """Latencies side by side, each with its spread and its ratio to the tuned one; the error."""
    from cluster.app.console.terminal import latency, ratio
    from tuner.report.bench import PROGRAMS
    from tuner.view.words import MODELLED

    tuned_ms, spread, samples = report["tuned_ms"], report["spread"], report["samples"]
    rows = [
        (
            program,
            latency(report[f"{program}_ms"] / 1e3),
            f"{spread[program]:.0%}" if program in spread else "-",
            str(samples.get(program, "-")),
            ratio(report[f"{program}_ms"] / tuned_ms) if tuned_ms else "-",
        )
        for program in PROGRAMS
        if report[f"{program}_ms"] is not None
    ]
    print_table("", "latency", "spread", "samples", "to tuned", rows=rows)
    if report.get("modelled"):
        click.echo(MODELLED)
    if spread and max(spread.values()) > _BUSY:
        click.echo("the machine was busy: these times are apart too far to mean much, try again")
    if report["note"]:
        click.echo(f"onnxruntime: {report['note']}")
    against = "the untuned program" if report["reference"] == "untuned" else report["reference"]
    click.echo(
        f"largest difference of the output to that of {against}: "
        f"{report['max_abs_err']:.3g}, relative {report['max_rel_err']:.3g}"
    )
