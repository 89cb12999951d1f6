"""Puts into a session's store what MLflow is told beside its records, and writes the files that go
with them.

Nothing here waits for anything but the store and the disk; `tuner.tracking.tracker` starts the
reader.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any
from uuid import uuid4

from tuner.candidate import without_version
from tuner.cost_models.base import FittedModel, ModelKind
from tuner.dynamic.dispatch_tree import tree_text
from tuner.dynamic.kernel_set import KernelSet
from tuner.errors import TunerError
from tuner.files.atomic import write_bytes
from tuner.record import Status
from tuner.session.observer import Silent
from tuner.storage.base import RecordStore
from tuner.storage.facts import TrackingEntries
from tuner.task import Task
from tuner.tracking.entries import End, Kept, Metrics, Start, TrackingPaths, decode, encode
from tuner.tracking.pages import metric_names as names
from tuner.tracking.pages.task_table import table, task_rows
from tuner.utilisation import BUSY
from tuner.utilisation import shares as by_use
from tuner.view.as_json import snapshot_json, space_json
from tuner.view.progress import Snapshot
from tuner.view.task_view import TaskView


class RunStatus(StrEnum):
    """The end of a session, in MLflow's words."""

    FINISHED = "FINISHED"
    """Its budget was spent."""
    KILLED = "KILLED"
    """Somebody stopped it."""
    FAILED = "FAILED"
    """It could not go on."""


class TrackingObserver(Silent):
    """Tells MLflow of a session, by way of the store. Implements `tuner.session.observer.Observer`.

    What cannot be written (a full disk) is counted in `lost`, never raised. For one thread.
    """

    def __init__(
        self,
        paths: TrackingPaths,
        store: RecordStore,
        *,
        name: str,
        params: Mapping[str, object],
        tags: Mapping[str, object] | None = None,
        clock: Callable[[], float] = time.time,
        new_uuid: Callable[[], str] = lambda: uuid4().hex,
        checkpoint_every_s: float = 60.0,
        snapshot_every_s: float = 5.0,
        table_every_s: float = 120.0,
    ) -> None:
        """Go on with a run, new or old.

        Args:
            store: of the run.
            name: name of the run in MLflow.
            params: fixed facts of the run (model, target, trials, seed, ...).
            tags: facts that may change from session to session.
            clock: seconds since the epoch.

        Raises:
            TunerError: the store cannot be read.
        """
        self._files = paths.files
        self._store = store
        self._clock = clock
        before = [e for e in map(decode, store.get(TrackingEntries).texts) if isinstance(e, Start)]
        self._session = len(before) + 1
        self._tasks: dict[str, Task] = {}
        self._checkpoint_every_s = checkpoint_every_s
        self._snapshot_every_s = snapshot_every_s
        self._table_every_s = table_every_s
        self._checkpoint_s = self._snapshot_s = float("-inf")
        self._table_s = clock()
        self._unsaved: dict[ModelKind, FittedModel] = {}
        self._said: dict[str, float] = {}
        self._begun = self._ended = False
        self.sets: dict[str, KernelSet] = {}
        """The kernels that were chosen, by task key."""
        self.lost = 0
        """Entries and files that could not be written."""
        self._start = Start(
            uuid=before[0].uuid if before else new_uuid(),
            name=name,
            params={k: str(v) for k, v in params.items()},
            tags={k: str(v) for k, v in (tags or {}).items()},
            time_s=clock(),
        )

    def on_start(self, tasks: Sequence[Task]) -> None:
        """Announce the run, with all its tasks, also those that are not of this session."""
        self._tasks = {task.key: task for task in self._store.tasks()}
        # Nothing is gained yet; first, since MLflow lists metrics in the order in which they came.
        first = Metrics(None, 0, {names.GAIN: 1.0}, self._start.time_s)
        self._say(self._start, *([first] if self._session == 1 else []))
        self._begun = True

    def on_model(self, fitted: FittedModel) -> None:
        """Write the model's accuracy, and once in a while a checkpoint of the model."""
        values = {
            names.COST_MODEL_FIT: fitted.fit_s,
            names.COST_MODEL_VERSION: float(fitted.version),
        }
        if fitted.pairwise_accuracy is not None:
            values[names.COST_MODEL_ACCURACY] = fitted.pairwise_accuracy
        now_s = self._clock()
        self._say(Metrics(None, fitted.records, values, now_s))
        self._unsaved[fitted.kind] = fitted
        if now_s - self._checkpoint_s >= self._checkpoint_every_s:
            self._checkpoint_s = now_s
            self._save_checkpoints()

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Write the run's own curves, as far as they changed since the last snapshot."""
        now_s = self._clock()
        if now_s - self._snapshot_s >= self._snapshot_every_s:
            self._snapshot_s = now_s
            self._snapshot(snapshot, now_s)
        if now_s - self._table_s >= self._table_every_s:
            self._table_s = now_s
            self._table(snapshot)

    def on_kernels(self, task_key: str, chosen: KernelSet) -> None:
        """Write the set's latencies, and losses by number of kernels, as metrics; the set and its
        tree as files."""
        self.sets[task_key] = chosen
        task = self._tasks.get(task_key)
        if task is None:
            return
        self._say(*_of_kernels(task_key, chosen, self._clock()))
        name = re.sub(r"[^\w.-]", "_", task.name)
        self._keep_json(f"kernels/{name}.json", chosen.to_json())
        self.keep(f"kernels/{name}.txt", (tree_text(chosen.tree) + "\n").encode())

    def on_end(self, snapshot: Snapshot) -> None:
        """Write the last values, the last checkpoint and a summary."""
        now_s = self._clock()
        self._snapshot(snapshot, now_s)
        self._whole(snapshot, now_s)
        share = snapshot.shares() if self._is_whole(snapshot) else {}
        last = {t.key: _at_the_end(t, share) for t in snapshot.tasks if t.key in self._tasks}
        # At step 0, which no record has.
        self._say(*(Metrics(key, 0, values, now_s) for key, values in last.items() if values))
        self._table(snapshot)
        self._spaces(snapshot, now_s)
        self._save_checkpoints()
        summary = {"run": self._start.uuid, "session": self._session, **snapshot_json(snapshot)}
        self._keep_json("summary.json", summary)

    def keep(self, name: str, data: bytes) -> None:
        """Write a file that goes with the run, under the name that it shall have in MLflow."""
        try:
            write_bytes(self._files / name, data)
        except OSError:
            self.lost += 1

    def _keep_json(self, name: str, value: Mapping[str, Any]) -> None:
        self.keep(name, json.dumps(value, indent=1).encode())

    def close(self, status: RunStatus) -> None:
        """Tell how the session ended, if it ever began. Must be called however it did; the store
        has to be flushed after it."""
        if self._begun and not self._ended:
            self._ended = True
            self._say(End(str(status), self._clock()))

    def _snapshot(self, snapshot: Snapshot, now_s: float) -> None:
        values = {
            names.TRIALS: float(snapshot.trials),
            names.TRIALS_PER_S: snapshot.trials_per_s,
            names.CENSORED: float(snapshot.statuses.get(Status.CENSORED, 0)),
            names.DUPLICATES: float(snapshot.statuses.get(Status.DUPLICATE, 0)),
        }
        for status in Status:
            if status.failed and (number := snapshot.statuses.get(status, 0)):
                values[f"{names.FAILED}{status}"] = float(number)
        if snapshot.estimate_accuracy is not None:
            values[names.ESTIMATE_ACCURACY] = round(snapshot.estimate_accuracy, 3)
        if snapshot.next_gain is not None:
            values[names.NEXT_GAIN] = names.round_shown(snapshot.next_gain)
        for kind, seconds in snapshot.utilisation.items():
            busy = by_use(seconds).get(BUSY, 0.0)
            values[f"{names.SLOTS_BUSY}{kind}"] = round(busy, 3)
        changed = {k: v for k, v in values.items() if self._said.get(k) != v}
        if changed:
            self._say(Metrics(None, snapshot.trials, changed, now_s))
            self._said.update(changed)

    def _whole(self, snapshot: Snapshot, now_s: float) -> None:
        """Write the model's gain and latency at the end. Until then its records tell them; what is
        chosen at the end for many shapes, they do not."""
        if not self._is_whole(snapshot):
            return  # of some tasks alone neither is the model's
        values = {} if snapshot.gain is None else {names.GAIN: names.round_shown(snapshot.gain)}
        if snapshot.latency_s and all(task.best_s for task in snapshot.tasks):
            values[names.LATENCY] = names.round_shown(snapshot.latency_s * 1e3)
        if values:
            self._say(Metrics(None, snapshot.trials, values, now_s))

    def _spaces(self, snapshot: Snapshot, now_s: float) -> None:
        """Write how often each design space was tried and for how many tasks it was fastest, as
        metrics of the run, and all that is known of them as a table."""
        if not snapshot.spaces:
            return
        values: dict[str, float] = {}
        for row in snapshot.spaces:
            space = re.sub(r"[^\w.-]", "_", without_version(row.space))
            values[names.SPACE_TRIALS + space] = float(row.trials)
            values[names.SPACE_WON + space] = float(len(row.won))
        self._say(Metrics(None, snapshot.trials, values, now_s))
        self._keep_json("spaces.json", table([*map(space_json, snapshot.spaces)]))

    def _is_whole(self, snapshot: Snapshot) -> bool:
        """Whether a session has all tasks of the run; one that goes on with some has not."""
        return {row.key for row in snapshot.tasks} == self._tasks.keys()

    def _table(self, snapshot: Snapshot) -> None:
        if self._is_whole(snapshot):
            self._keep_json("tasks.json", table(task_rows(snapshot)))

    def _save_checkpoints(self) -> None:
        for fitted in self._unsaved.values():
            suffix = "npz" if fitted.kind is ModelKind.PROCESS else "ubj"
            name = f"cost_model/{fitted.kind}-{fitted.version}"
            if (self._files / f"{name}.{suffix}").exists():
                name += f"-session-{self._session}"  # an earlier session counted from 1 too
            self.keep(f"{name}.{suffix}", fitted.model)
        self._unsaved.clear()

    def _say(self, *entries: Kept) -> None:
        if not entries:
            return
        try:
            self._store.put(TrackingEntries(list(map(encode, entries))))
        except TunerError:
            self.lost += len(entries)


def _of_kernels(task_key: str, chosen: KernelSet, now_s: float) -> list[Metrics]:
    """A set's latencies, and losses by number of kernels."""
    values = {
        names.TASK_KERNELS: float(len(chosen.kernels)),
        names.TASK_KERNELS_LATENCY: chosen.latency_s * 1e6,
        names.TASK_KERNELS_LOSS: chosen.loss,
    }
    if chosen.error is not None:
        values[names.TASK_PREDICTION_ERROR] = chosen.error
    said = [Metrics(task_key, 0, values, now_s)]
    for number, loss in enumerate(chosen.losses, start=1):
        said.append(Metrics(task_key, number, {names.TASK_LOSS: loss}, now_s))
    for number, shape in enumerate(chosen.shapes):
        step = shape.instance[0][1] if len(shape.instance) == 1 else number
        times = {
            names.TASK_SHAPE: shape.latency_s * 1e6,
            names.TASK_SHAPE_BEST: shape.best_s * 1e6,
        }
        said.append(Metrics(task_key, step, times, now_s))
    return said


def _at_the_end(task: TaskView, share: Mapping[str, float]) -> dict[str, float]:
    """The last values of a task's own run."""
    values = {
        names.TASK_UNTUNED: None if task.default_s is None else task.default_s * 1e6,
        names.TASK_GAIN: task.gain,
        names.TASK_SHARE: share.get(task.key),
    }
    return {name: value for name, value in values.items() if value is not None}
