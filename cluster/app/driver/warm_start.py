"""The warm start of a run: a base model, and the best candidates of equal and similar tasks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import tuner.cost_models
from cluster.search.job import WarmStart
from tuner.errors import TunerError
from tuner.request.options import SHIPPED
from tuner.request.target_text import is_emulated
from tuner.runs.emulated import refuse_emulated
from tuner.runs.folder import RunFolder, read_run
from tuner.search.transfer import Seeds, gather
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task, task_key

NONE, AUTO = "none", "auto"
_SHIPPED = Path(tuner.cost_models.__file__).with_name("shipped")


def base_for(wanted: str, target: str, tracking_uri: str | None) -> WarmStart:
    """The base model that the user asked for.

    Args:
        wanted: `shipped`, which may be none, `none`, `auto`, a registered name, `NAME:VERSION`, or
            the path of a file, which has a slash or ends in `.json`.
        tracking_uri: URI of MLflow; None is the user's own registry.

    Raises:
        TunerError: it does not exist, or does not fit this target or these features.
    """
    path = find_shipped(target) if wanted == SHIPPED else Path(wanted)
    if wanted == NONE or (wanted == SHIPPED and not path.exists()):
        return WarmStart()
    from spaces.features.vectors import FEATURE_VERSION
    from tuner.cost_models.pretrained import default_name, family, read_base_model, refuse_misfit

    if wanted == SHIPPED or _is_file(wanted):
        name, base = wanted, read_base_model(path)
    else:
        from tuner.tracking.mlflow_models import fetch, registry_uri

        asked = default_name(family(target)) if wanted == AUTO else wanted
        name, base = fetch(registry_uri(tracking_uri), asked)
    refuse_misfit(base, target=target, features=FEATURE_VERSION, name=name)
    return WarmStart(name, base.model or None, base.priors)


def find_shipped(target: str) -> Path:
    """The base model that ships with the tuner for a target; there may be none.

    Args:
        target: canonical JSON.
    """
    from spaces.targets.backends import backend_of
    from spaces.targets.cpu import cpu_of

    row = backend_of(target)
    on_cpu = row.on_host and not row.emulated
    bits = 8 * cpu_of(target).vector_bytes if on_cpu else 0
    return _SHIPPED / f"{row.kind}-{bits}.json"


def check_base(wanted: str) -> None:
    """Check the file of a base model; a registered name is not looked up here.

    Raises:
        TunerError: the file is missing, or cannot be read.
    """
    if _is_file(wanted):
        from tuner.cost_models.pretrained import read_base_model

        read_base_model(Path(wanted))


def _is_file(wanted: str) -> bool:
    return os.sep in wanted or wanted.endswith(".json")


def seeds_for(tasks: Sequence[Task], run: RunFolder, others: Sequence[Path]) -> dict[str, Seeds]:
    """The seeds of the tasks that have any, from their own run and from others.

    Raises:
        TunerError: a run that was named is missing, damaged or without records, or is on the
            emulated device and this run is on a real one.
    """
    opened_runs = [read_run(folder) for folder in others]
    if not any(is_emulated(task.target) for task in tasks):
        for folder, manifest in opened_runs:
            refuse_emulated(folder.root, manifest.target, "they seed no run on a device")
    folders = [folder for folder, _ in opened_runs]
    with ExitStack() as stack:

        def opened(folder: RunFolder) -> SqliteStore:
            if not folder.store.exists():
                raise TunerError(f"{folder.root} holds no records yet: there are no seeds in it")
            return stack.enter_context(closing(SqliteStore(folder.store, read_only=True)))

        stores = [opened(folder) for folder in folders]
        own = opened(run) if run.store.exists() else None
        known = gather(tasks, own, stores)
        targets = {entry.task.target for entry in known.entries}
        found = {task.key: known.seeds(task, _elsewhere(task, targets)) for task in tasks}
    return {key: seeds for key, seeds in found.items() if seeds.known or seeds.parents}


def _elsewhere(task: Task, targets: Iterable[str]) -> frozenset[str]:
    """Keys of a task's program for the other targets that take the same candidates."""
    from spaces.lowering.extract_tasks import program_hash
    from spaces.targets.target import takes_the_same

    alike = [t for t in targets if t != task.target and takes_the_same(t, task.target)]
    if not alike:
        return frozenset()
    program = program_hash(task)
    return frozenset(task_key(program, target) for target in alike)
