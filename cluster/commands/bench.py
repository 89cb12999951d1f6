"""`tuner bench DIR`: what tuning gained on the whole model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cluster.commands.flags import debug_flag, json_flag, run_argument
from cluster.commands.output import nothing_on_stdout, print_json, print_table

_PROGRAMS = ("untuned", "tuned", "onnxruntime")


@click.command(short_help="Whole-model latency, untuned and tuned.")
@run_argument
@json_flag
@debug_flag
def bench(run: Path, as_json: bool) -> None:
    """Time the model of DIR untuned, tuned and in onnxruntime, and compare the outputs."""
    with nothing_on_stdout(as_json):
        from cluster.results import bench as measure

        report = measure(run)
    if as_json:
        print_json(report)
        return
    _print(report)
    from cluster.page import mlflow_command

    uri = os.environ.get("MLFLOW_TRACKING_URI") or None
    click.echo(f"The record of the search: {mlflow_command(run, uri)}")


def _print(report: Mapping[str, Any]) -> None:
    """Latencies side by side, each with its share of the tuned one, then the error."""
    from cluster.terminal import latency, ratio

    tuned_ms = report["tuned_ms"]
    rows = []
    for program in _PROGRAMS:
        ms = report.get(f"{program}_ms")
        if ms is not None:
            against = ratio(ms / tuned_ms) if tuned_ms else "-"
            rows.append((program, latency(ms / 1e3), against))
    print_table("", "latency", "of tuned", rows=rows)
    if report.get("onnxruntime_ms") is None:
        click.echo("onnxruntime is not compared: it is not installed, or this is no ONNX model")
    absolute, relative = report.get("max_abs_err"), report.get("max_rel_err")
    if absolute is not None and relative is not None:
        click.echo(f"largest error of the output: {absolute:.3g}, relative {relative:.3g}")
