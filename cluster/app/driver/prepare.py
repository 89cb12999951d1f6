"""The steps before a search: read the model, find its tasks, open its run folder."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.app.driver.begun import find_precision
from cluster.app.driver.declared_space import find_space, with_space
from cluster.app.driver.layers import collect_offers, find_layers, try_layers
from cluster.search.import_check import check_limit_s
from cluster.search.job import SearchJob
from tuner.errors import TunerError, UsageError
from tuner.files.atomic import put_folder
from tuner.layers import Layers, versions
from tuner.precision import Precision
from tuner.request.options import SHIPPED, TuneOptions
from tuner.run_location import RunLocation
from tuner.runs.folder import LAYER, Manifest, RunFolder, open_run, other_layers
from tuner.runs.lock import RunLock
from tuner.runs.model_files import DamagedCopy, check_copy
from tuner.runs.remote import begin, begun_as, local, put_model, remote_run, working_folder
from tuner.task import Task
from tuner.version import VERSION

if TYPE_CHECKING:
    from spaces.frontends.model import Model

_log = logging.getLogger(__name__)

_NEW_RUNS = Path("runs")
"""The folder for runs that the user did not name."""


def check_cheaply(options: TuneOptions) -> None:
    """Find missing files before a machine is waited for, which may take long.

    Raises:
        TunerError: the model, one of its inputs, or another run or model that was named is missing.
    """
    from cluster.app.driver.warm_start import check_base
    from spaces.frontends.model import check_model

    check_model(options.model)
    check_base(options.base_model)
    for other in options.seeds_from:
        if begun_as(RunLocation.of(other)) is None:
            raise TunerError(f"--seeds-from {other}: there is no run")
    find_space(options)
    find_layers(options)


def prepare(
    options: TuneOptions,
    run: RunLocation,
    *,
    tracking_uri: str = "",
    target: str | None = None,
    device: str = "",
    driver_pid: int | None = None,
    on_found: Callable[[], None] = lambda: None,
) -> SearchJob:
    """Import and lower the model, find its tasks and their seeds, open the run folder.

    Args:
        target: canonical JSON, as the machines that measure resolved it; None is for this machine.
        on_found: is called as soon as the model was found.
        tracking_uri, device, driver_pid: see `SearchJob`.
    """
    from cluster.app.driver.begun import target_here
    from cluster.app.driver.warm_start import NONE, base_for, seeds_for
    from spaces.design_space.default_schedule import default_candidate
    from spaces.frontends.model import load_model
    from spaces.lowering.extract_tasks import describe_untuned, extract
    from spaces.lowering.lower import lower
    from spaces.precision.convert import in_precision

    space, layers = find_space(options), try_layers(options)
    if layers.cost_model is not None and options.base_model not in (NONE, SHIPPED):
        raise UsageError("base_model: it is for our cost model, and another is named")
    model = load_model(options.model, on_found)
    target = target or target_here(run, options.target)
    options = replace(options, target=target, space=space, space_arguments="")
    base = base_for(options.base_model, options.target, tracking_uri)
    precision = find_precision(options, run, model)
    lowered = lower(in_precision(model, precision).module, options.target)
    tasks = tuple(extract(lowered, options.target, options.only, model.shapes))
    others = [local(RunLocation.of(other)) for other in options.seeds_from]
    tasks, notes = with_space(tasks, space)
    for note in notes:  # before the search, and among the warnings at its end
        print(f"tuner: warning: {note}", file=sys.stderr)
    _refuse_symbolic(tasks, layers)
    libraries = collect_offers(layers, tasks)
    left = describe_untuned(lowered, model.shapes)
    folder, goes_on = _open(options, run, model, layers, precision)
    return SearchJob(
        # A model from memory stays in this process.
        options=replace(options, model=replace(options.model, program=None)),
        location=run.resolved(),
        run=folder.root.resolve(),
        tasks=tasks,
        defaults={t.key: default_candidate(t) for t in tasks},
        warm_start=replace(base, seeds=seeds_for(tasks, folder, others)),
        driver_pid=driver_pid,
        device=device,
        tracking_uri=tracking_uri,
        note="; ".join(filter(None, (left, *notes, *libraries.notes, *goes_on))),
        layers=layers,
        libraries=libraries.candidates,
        precision=precision,
    )


def _refuse_symbolic(tasks: Sequence[Task], layers: Layers) -> None:
    """Refuse features of a user's where kernels for many shapes are told apart by ours.

    Raises:
        UsageError: a task has symbolic dimensions.
    """
    symbolic = next((task.name for task in tasks if task.shapes), "")
    if layers.features is not None and symbolic:
        raise UsageError(
            f"features: {symbolic} has symbolic dimensions, and its kernels have features of their "
            "own: name tasks without any with --only"
        )


def _open(
    options: TuneOptions,
    run: RunLocation,
    model: Model,
    layers: Layers,
    precision: Precision | None,
) -> tuple[RunFolder, list[str]]:
    """Open the run folder, and put the model into it. Return it, and lines for the user on layers
    that are not those which it was begun with."""
    wanted = replace(_manifest(options, model, layers), precision=precision)
    remote = remote_run(run) if run.is_url else None
    if remote is not None:
        begin(remote, wanted)
    folder, found = open_run(working_folder(run).root, wanted)
    with RunLock(folder.lock):  # to be refused early; the search takes it again, and keeps it
        _keep_model(model, options, folder)
    if remote is not None:
        put_model(remote)
    return folder, other_layers(found, wanted)


def _keep_model(model: Model, options: TuneOptions, run: RunFolder) -> None:
    """Copy the model into the run, whole or not at all; a copy that is damaged is made anew."""
    from spaces.frontends.model_copy import save_model_copy
    from spaces.import_check.answers import record

    if run.model_dir.exists():
        try:
            return check_copy(run.model_dir, model.content_hash)
        except DamagedCopy as damaged:
            _log.error("%s: it is copied anew", damaged.finding)
    partial = run.model_dir.with_name("model.part")
    shutil.rmtree(partial, ignore_errors=True)
    given, references = options.model.inputs, None
    if options.import_check:
        references = record(model, given, check_limit_s(options))
    save_model_copy(model, partial, inputs=given, references=references)
    try:
        if run.model_dir.exists():
            shutil.rmtree(run.model_dir)
        put_folder(partial, run.model_dir)
    except OSError as error:
        raise TunerError(f"cannot copy the model to {run.model_dir}: {error.strerror}") from error


def _manifest(options: TuneOptions, model: Model, layers: Layers) -> Manifest:
    space = find_space(options)
    return Manifest(
        model=options.model.source,
        model_hash=model.content_hash,
        target=options.target,
        options={
            "seed": options.seed,
            "effort": options.effort.name,
            "strategy": versions(layers).get("strategy", str(options.strategy)),
            "trials": options.trials,
            "only": options.only,
            "base_model": options.base_model,
            "max_kernels": options.max_kernels,
            "space": f"{space.file}:{space.name}{space.arguments}" if space else None,
            "space_version": space.version if space else None,
            **{f"{LAYER}{name}": said for name, said in versions(layers).items()},
        },
        created_s=time.time(),
        tuner_version=VERSION,
    )


def new_run(model: str) -> RunLocation:
    """A fresh folder under `runs/`, named after the model and the time."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return RunLocation.of(_NEW_RUNS / f"{Path(model.rpartition(':')[2]).stem}-{stamp}")
