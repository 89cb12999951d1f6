"""`tuner train DIR...` and `tuner models`: base models of the cost model."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cluster.app.commands.runs import open_run
from cluster.app.console.flags import PATH, RUN, TEXT, debug_flag, json_flag
from cluster.app.console.output import nothing_on_stdout, print_json, print_table
from tuner.errors import TunerError, UsageError
from tuner.run_location import RunLocation

if TYPE_CHECKING:
    from tuner.cost_models.pretrained import BaseModel
    from tuner.tracking.mlflow_models import Version

_URI = "MLFLOW_TRACKING_URI"


@click.command(short_help="Train a base cost model on finished runs.")
@click.argument("runs", metavar="DIR...", nargs=-1, required=True, type=RUN)
@click.option(
    "--name",
    metavar="NAME",
    type=TEXT,
    help="Under which it is registered. Default: the name of its family of targets.",
)
@click.option("--out", metavar="FILE", type=PATH, help="Write a file, and register nothing.")
@json_flag
@debug_flag
def train(runs: tuple[RunLocation, ...], name: str | None, out: Path | None, as_json: bool) -> None:
    """Train a base model on the records of the runs in DIR..., for `tuner tune --base-model`."""
    if name is not None and out is not None:
        raise UsageError("tuner train takes --name or --out, not both")
    if name is not None and set(name) & set("/:"):
        raise UsageError(f"--name {name}: a model's name has no '/' and no ':'")
    with nothing_on_stdout(as_json):
        base = train_on(runs)
        kept = _keep(base, name, out)
    if as_json:
        print_json(train_report(base, kept))
        return
    from tuner.view.words import amount

    of = f"{amount(base.records, 'record')} of {amount(base.tasks, 'task')}"
    known = (
        ""
        if base.accuracy is None
        else (f"; on tasks it had not seen it orders {base.accuracy:.0%} of pairs rightly")
    )
    click.echo(f"{kept}: {of} for {base.family}{known}")


def train_on(runs: tuple[RunLocation, ...], forms: Collection[str] | None = None) -> BaseModel:
    """A base model of finished runs, all of one family of targets.

    Args:
        forms: of templates, those whose settings it learns; None is all of them.

    Raises:
        TunerError: a run is missing or of another family, or nothing can be learned from them.
    """
    from spaces.design_space.task_space import describe_settings
    from spaces.features.vectors import FEATURE_LENGTH, FEATURE_VERSION
    from tuner.cost_models import pretrained
    from tuner.runs.emulated import refuse_emulated

    with ExitStack() as stack:
        found = [stack.enter_context(open_run(run)) for run in dict.fromkeys(runs)]
        for run, (manifest, _) in zip(dict.fromkeys(runs), found, strict=True):
            refuse_emulated(run, manifest.target, "a base model learns nothing from them")
        families = {pretrained.family(manifest.target) for manifest, _ in found}
        if len(families) > 1:
            raise TunerError(
                f"these runs are for different families of targets ({', '.join(sorted(families))}):"
                " train a model for each"
            )
        stores = [store for _, store in found]
        programs = pretrained.training_set(stores, columns=FEATURE_LENGTH)
        settings = pretrained.settings_set(stores, describe_settings)
    if forms is not None:
        settings = {form: settings[form] for form in forms}
    return pretrained.learn(programs, settings, families.pop(), FEATURE_VERSION, time.time())


def _keep(base: BaseModel, name: str | None, out: Path | None) -> str:
    """Keep a base model. Return its place: `NAME:VERSION`, or the file."""
    if out is not None:
        from tuner.files.atomic import output_file

        with output_file(out) as file:
            file.write(base.to_json())
        return str(out)
    from tuner.cost_models.pretrained import default_name
    from tuner.tracking.mlflow_models import register, registry_uri

    name = name or default_name(base.family)
    version = register(registry_uri(os.environ.get(_URI)), name, base)
    return f"{name}:{version}"


def train_report(base: BaseModel, kept: str) -> dict[str, Any]:
    """The report of `tuner train --json`."""
    return {
        "model": kept,
        "family": base.family,
        "features": base.features,
        "tasks": base.tasks,
        "records": base.records,
        "accuracy": base.accuracy,
    }


@click.command(short_help="List the base models there are.")
@json_flag
@debug_flag
def models(as_json: bool) -> None:
    """List base models, newest first below each name."""
    from tuner.tracking.mlflow_models import registry_uri, versions

    with nothing_on_stdout(as_json):
        found = versions(registry_uri(os.environ.get(_URI)))
    if as_json:
        print_json(models_report(found))
        return
    if not found:
        click.echo("no base models yet: 'tuner train DIR...' makes one")
        return
    print_table(
        "model",
        "family",
        "features",
        "tasks",
        "records",
        "accuracy",
        rows=[
            (
                f"{v.name}:{v.version}",
                v.family,
                v.features,
                str(v.tasks),
                str(v.records),
                "-" if v.accuracy is None else f"{v.accuracy:.3f}",
            )
            for v in found
        ],
    )


def models_report(found: list[Version]) -> dict[str, Any]:
    """The report of `tuner models --json`."""
    return {"models": [asdict(version) for version in found]}
