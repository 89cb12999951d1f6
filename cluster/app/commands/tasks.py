"""`tuner tasks MODEL`: what would be tuned, and each task's share, without tuning."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cluster.app.console.flags import (
    debug_flag,
    json_flag,
    model_argument,
    model_flags,
    model_spec,
)
from cluster.app.console.output import nothing_on_stdout, print_json, print_table
from tuner.request.model_spec import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spaces.frontends.model import Model
    from tuner.runs.import_check import ImportCheck
    from tuner.task import Task


@click.command(short_help="What would be tuned, without tuning.")
@model_argument
@model_flags
@click.option("--check", is_flag=True, help="Compare the imported model with its source, too.")
@json_flag
@debug_flag
def tasks(
    model: str,
    shapes: tuple[str, ...],
    inputs: tuple[str, ...],
    arguments: tuple[str, ...],
    dims: tuple[str, ...],
    weights: Path | None,
    target: str,
    only: str | None,
    check: bool,
    as_json: bool,
) -> int:
    """List the tasks of MODEL and each one's share of its arithmetic, without tuning."""
    spec = model_spec(model, shapes, inputs, arguments, dims, weights)
    with nothing_on_stdout(as_json):
        resolved, imported, found, note = _extract(spec, target, only)
        checked = _check(imported, spec, resolved) if check else None
    code = 1 if checked is not None and checked.state == "differs" else 0
    report = task_report(resolved, found, note)
    if as_json:
        print_json(report | ({"import": checked.to_json()} if checked else {}))
        return code
    rows = [
        (t["name"], f"{t['weight']:g}", f"{t['gflop']:.4g}", f"{t['share']:.1%}")
        for t in report["tasks"]
    ]
    print_table("task", "weight", "GFLOP", "share", rows=rows)
    if report["note"]:
        click.echo(report["note"])
    if checked is not None:
        click.echo(checked.line)
    return code


def _check(model: Model, spec: ModelSpec, target: str) -> ImportCheck:
    """Compare a model with its source."""
    from cluster.search.import_check import MOST_S, compare_copy
    from spaces.frontends.model_copy import save_model_copy
    from spaces.import_check.answers import record

    with tempfile.TemporaryDirectory() as folder:
        references = record(model, spec.inputs, MOST_S)
        save_model_copy(model, Path(folder), inputs=spec.inputs, references=references)
        return compare_copy(Path(folder), model.content_hash, target)


def _extract(
    spec: ModelSpec, target: str, only: str | None
) -> tuple[str, Model, Sequence[Task], str]:
    """The target, the model, its tasks, and a note on functions that are not tuned."""
    from spaces.frontends.model import load_model
    from spaces.lowering.extract_tasks import describe_untuned, extract
    from spaces.lowering.lower import lower
    from spaces.targets.target import resolve_target

    resolved = resolve_target(target)
    model = load_model(spec)
    lowered = lower(model.module, resolved)
    found = extract(lowered, resolved, only, model.shapes)
    return resolved, model, found, describe_untuned(lowered, model.shapes)


def task_report(target: str, found: Sequence[Task], note: str = "") -> dict[str, Any]:
    """Tasks by their share of the model's floating-point operations, the largest first.

    Args:
        note: line for people on functions that are not tuned.
    """
    total = sum(task.weight * task.flops for task in found)
    ordered = sorted(found, key=lambda task: (-task.weight * task.flops, task.name))
    return {
        "target": target,
        "tasks": [
            {
                "name": task.name,
                "key": task.key,
                "weight": task.weight,
                "gflop": task.flops / 1e9,
                "share": task.weight * task.flops / total if total else 0.0,
            }
            for task in ordered
        ],
        "note": note,
    }
