"""A run whose records were measured, by the code that measures them, without a cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from actors.builder import Builder
from actors.runner import Runner
from tests.actors.inline_measurer import InlineMeasurer
from tuner.candidate import Candidate
from tuner.layers import OURS, Layers, versions
from tuner.record import Provenance, Record, Trial
from tuner.run_location import RunLocation
from tuner.runs.folder import LAYER, Manifest, RunFolder, open_run
from tuner.runs.remote import open_store
from tuner.storage.base import begin_session
from tuner.storage.facts import Defaults, SessionEnded, Tasks
from tuner.task import Instance, Task

_WAIT_S = 120.0


def real_run(
    folder: Path,
    tasks: Mapping[Task, Sequence[Candidate]],
    layers: Layers = OURS,
    *,
    again: int = 2,
    shapes: Sequence[Instance] = ((),),
) -> Path:
    """A run of some tasks for one target: the default schedule and each candidate timed once, the
    candidates then timed again.

    Args:
        again: how often.
        shapes: what all of them are timed on.
    """
    from spaces.design_space.default_schedule import default_candidate
    from spaces.passes.toolchain import toolchain_fingerprint
    from spaces.targets.target import device_fingerprint

    target = next(iter(tasks)).target
    said = {f"{LAYER}{name}": version for name, version in versions(layers).items()}
    run, _ = open_run(folder, Manifest("network", "hash", target, said))
    defaults = {task.key: default_candidate(task) for task in tasks}
    trials = [
        Trial(task.key, candidate, shape, rung)
        for rung in range(1 + again)
        for task, candidates in tasks.items()
        for candidate in (*(() if rung else (defaults[task.key],)), *candidates)
        for shape in shapes
    ]
    measurer = InlineMeasurer(
        list(tasks),
        Builder(log_dir=folder, layers=layers),
        Runner(target=target, log_dir=folder, scratch=folder / "scratch", layers=layers),
        provenance=Provenance("here", device_fingerprint(target), toolchain_fingerprint()),
    )
    with closing(measurer), closing(open_store(RunLocation.of(run.root), run)) as store:
        store.put(Tasks(list(tasks)), Defaults({key: c.key for key, c in defaults.items()}))
        session = begin_session(store, 100.0)
        for record in _measured(measurer, trials):
            store.append_many([(record, None)])
        store.put(SessionEnded(session, 104.0, "trials"))
    return run.root


def _measured(measurer: InlineMeasurer, trials: Iterable[Trial]) -> Iterable[Record]:
    left, waiting = list(trials), 0
    until = time.monotonic() + _WAIT_S
    while left or waiting:
        assert time.monotonic() < until
        batch, left = left[: measurer.free()], left[measurer.free() :]
        measurer.submit(batch)
        records = measurer.collect(1.0)
        waiting += len(batch) - len(records)
        yield from records


def database(run: Path) -> Path:
    """The file of a run's records."""
    return RunFolder(run).store
