"""What a run claims of its winners: the kernels, their programs and their times, of its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tuner.candidate import Candidate
from tuner.dynamic.kernel_set import KernelSet
from tuner.dynamic.shapes import sample_shapes
from tuner.generations import of_newest
from tuner.record import Record
from tuner.storage.base import RecordStore
from tuner.storage.facts import Defaults
from tuner.task import Instance, Task
from tuner.view.winners import NO_SETS, choose

_SHAPES = 3
"""The shapes that a kernel for many is looked at on."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What the records say of a winner; of a task with symbolic dimensions, of one of its kernels
    on one of the shapes that it serves.

    Attributes:
        record: what says so.
        again_s: the times that it had when it was timed again, if it was.
        default: of the default schedule; None where the run has none, or where it won.
    """

    task: Task
    record: Record
    again_s: tuple[float, ...]
    default: Record | None

    @property
    def candidate(self) -> Candidate:
        """The winner."""
        return self.record.trial.candidate

    @property
    def latency_s(self) -> float:
        """Its time, as the run reports it."""
        assert self.record.latency_s is not None
        return self.record.latency_s

    @property
    def default_s(self) -> float | None:
        """The time of the default schedule."""
        return self.default.latency_s if self.default is not None else None


def claims(
    store: RecordStore,
    sets: Mapping[str, KernelSet] = NO_SETS,
    only: Collection[str] = (),
    most: int = _SHAPES,
) -> list[Claim]:
    """What a run claims of the winners of its tasks, in the order of the model.

    Args:
        sets: kernel sets of tasks with symbolic dimensions, by task key.
        only: keys of tasks; empty is all.
        most: shapes of each kernel of a set.
    """
    defaults = store.get(Defaults).by_task
    found: list[Claim] = []
    for task in store.tasks():
        if only and task.key not in only:
            continue
        default = defaults.get(task.key, "")
        if task.shapes:
            if task.key in sets:
                found += _of_kernels(store, task, sets[task.key], default, most)
        elif (choice := choose(store, task.key)) is not None:
            known = choice.default.last
            found.append(_claim(task, choice.record, choice.won.again_s, known))
    return found


def _claim(task: Task, record: Record, again_s: tuple[float, ...], default: Record | None) -> Claim:
    own = default is not None and default.trial.candidate.key == record.trial.candidate.key
    return Claim(task, record, again_s, None if own else default)


def _of_kernels(
    store: RecordStore, task: Task, chosen: KernelSet, default_key: str, most: int
) -> Iterator[Claim]:
    """Claims of each kernel of a set, on some of the shapes that it serves and was measured on."""
    good: dict[tuple[str, Instance], list[Record]] = {}
    for record in of_newest(list(store.scan(task.key))):
        if record.latency_s is not None:
            pair = (record.trial.candidate.key, record.trial.instance)
            good.setdefault(pair, []).append(record)
    served: dict[str, list[tuple[Instance, float]]] = {}
    for shape in chosen.shapes:
        candidate = shape.copy or chosen.kernels[shape.kernel]
        if (candidate.key, shape.instance) in good:
            served.setdefault(candidate.key, []).append((shape.instance, shape.weight))
    for key, shapes in served.items():
        for instance, _ in sample_shapes(tuple(shapes), most):
            records = good[key, instance]
            again = [r for r in records if r.trial.rung]
            counts = min(again or records, key=lambda r: r.latency_s or 0.0)
            known = good.get((default_key, instance))
            again_s = tuple(r.latency_s for r in again if r.latency_s is not None)
            yield _claim(task, counts, again_s, known[-1] if known else None)


def count_misfiled(store: RecordStore, task_key: str) -> int:
    """The number of a task's records that are filed under the key of another candidate than they
    hold, or that hold the same one as another of its records."""
    seen = Counter(record.trial.key for record in store.scan(task_key))
    filed = {
        record.trial.key
        for candidate_key in {key.candidate_key for key in seen}
        for record in store.scan(task_key, candidate_key=candidate_key)
    }
    return sum(count - (key in filed) for key, count in seen.items())
