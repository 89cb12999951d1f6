"""What comes before a search: the model is read, its tasks are found, its run folder is opened."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import TunerError
from tuner.files.atomic import put_folder
from tuner.options import TuneOptions
from tuner.runs.folder import Manifest, RunFolder, open_run
from tuner.runs.lock import RunLock
from tuner.runs.model_files import DamagedCopy, check_copy
from tuner.runs.remote import begin, local, put_model, remote_run, target_of

if TYPE_CHECKING:
    from cluster.driver.warm_start import WarmStart
    from spaces.frontends.model import Model
    from tuner.candidate import Candidate
    from tuner.task import Task

_log = logging.getLogger(__name__)

NEW_RUNS = Path("runs")
"""Where runs are that nobody named."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model as it goes to the search."""

    run: RunFolder
    url: str
    tasks: tuple[Task, ...]
    defaults: dict[str, Candidate]
    target: str
    warm_start: WarmStart
    note: str = ""
    """On functions that are left as they are."""

    @property
    def place(self) -> Path | str:
        """What the user knows the run by."""
        return self.url or self.run.root


def check_cheaply(options: TuneOptions) -> None:
    """Look for what is missing before a machine is waited for, which may take long.

    Raises:
        TunerError: the model, one of its inputs, or another run or model that was named.
    """
    from cluster.driver.warm_start import check_base
    from spaces.frontends.model import check_model

    check_model(options.model)
    check_base(options.base_model)
    for other in options.seeds_from:
        if target_of(other) is None:
            raise TunerError(f"--seeds-from {other}: there is no run")


def prepare(
    options: TuneOptions,
    tracking_uri: str,
    on_found: Callable[[], None],
    target: str | None = None,
) -> Prepared:
    """Import and lower the model, find its tasks and what is known of them, open the folder.

    Args:
        target: canonical JSON, as machines that measure resolved it; None is for this machine.
    """
    from cluster.driver.run_target import target_here
    from cluster.driver.warm_start import base_for, seeds_for
    from spaces.design_space.default_schedule import default_candidate
    from spaces.frontends.model import load_model
    from spaces.lowering.extract_tasks import extract, left_as_they_are
    from spaces.lowering.lower import lower

    model = load_model(options.model, on_found)
    target = target or target_here(options)
    base = base_for(options.base_model, target, tracking_uri)
    lowered = lower(model.module, target)
    tasks = tuple(extract(lowered, target, options.only, model.shapes))
    others = [local(other) for other in options.seeds_from]
    run, url = _opened(options, model, _manifest(options, model, target))
    warm_start = replace(base, seeds=seeds_for(tasks, run, others))
    return Prepared(
        run=run,
        url=url,
        tasks=tasks,
        defaults={t.key: default_candidate(t) for t in tasks},
        target=target,
        warm_start=warm_start,
        note=left_as_they_are(lowered, model.shapes),
    )


def _opened(options: TuneOptions, model: Model, wanted: Manifest) -> tuple[RunFolder, str]:
    """The run folder, with the model in it, and the URL of the run if it has one."""
    remote = None
    if isinstance(options.run, str):
        remote = remote_run(options.run)
        begin(remote, wanted)
        folder = remote.run.root
    else:
        folder = options.run or new_folder(model.name)
    run, _ = open_run(folder, wanted)
    with RunLock(run.lock):  # refused early, and once more by the search, which keeps it
        _keep_model(model, options, run)
    if remote is None:
        return run, ""
    put_model(remote)
    return run, remote.url


def _keep_model(model: Model, options: TuneOptions, run: RunFolder) -> None:
    """Have a copy of the model in the run, whole or not at all; one that is damaged, or is not read
    any more, is made anew."""
    from spaces.frontends.model_copy import is_outdated, save_model_copy

    if run.model_dir.exists() and not is_outdated(run.model_dir):
        try:
            return check_copy(run.model_dir, model.content_hash)
        except DamagedCopy as damaged:
            _log.error("%s: it is copied anew", damaged.finding)
    partial = run.model_dir.with_name("model.part")
    shutil.rmtree(partial, ignore_errors=True)
    save_model_copy(model, partial, inputs=options.model.inputs)
    try:
        if run.model_dir.exists():
            shutil.rmtree(run.model_dir)
        put_folder(partial, run.model_dir)
    except OSError as error:
        raise TunerError(f"cannot copy the model to {run.model_dir}: {error.strerror}") from error


def _manifest(options: TuneOptions, model: Model, target: str) -> Manifest:
    import tuner

    return Manifest(
        model=options.model.source,
        model_hash=model.content_hash,
        target=target,
        options={
            "seed": options.seed,
            "effort": options.effort.name,
            "strategy": options.strategy,
            "trials": options.trials,
            "only": options.only,
            "base_model": options.base_model,
            "max_kernels": options.max_kernels,
        },
        created_s=time.time(),
        tuner_version=tuner.__version__,
    )


def new_folder(model: str) -> Path:
    """A fresh folder under `runs/`, named after the model and the time."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return NEW_RUNS / f"{Path(model.rpartition(':')[2]).stem}-{stamp}"
