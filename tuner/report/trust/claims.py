"""What a run claims of its winners: the kernels, their programs and their times, of its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tuner.candidate import Candidate
from tuner.dynamic.kernel_set import KernelSet
from tuner.dynamic.shapes import sample_shapes
from tuner.generations import first_rung, of_newest
from tuner.record import Record
from tuner.storage.base import RecordStore
from tuner.storage.facts import Defaults
from tuner.task import Instance, Task
from tuner.view.winners import NO_SETS, Timings, choose_best

_SHAPES = 3
"""The shapes that a kernel for many is looked at on."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What the records say of a winner; of a task with symbolic dimensions, of one of its kernels
    on one of the shapes that it serves.

    Attributes:
        code_hash: of the scheduled program; empty where the record has none.
        latency_s: its time, as the run reports it.
        again_s: the times that it had when it was timed again, if it was.
        default: the default schedule; None where the run has no record of it, or where it won.
        default_s: the time of that.
        device, toolchain: that it was measured with; may be empty.
    """

    task: Task
    candidate: Candidate
    instance: Instance
    code_hash: str
    latency_s: float
    again_s: tuple[float, ...]
    default: Candidate | None
    default_s: float | None
    device: str
    toolchain: str


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
        elif (won := choose_best(store, task.key)) is not None:
            # Times of older toolchains' generations are not compared with those of the newest.
            first = first_rung(store.scan(task.key, min_rung=1))
            mine = Timings.of(store, task.key, won.trial.candidate.key, first)
            known = Timings.of(store, task.key, default, first).last
            assert mine.last_s is not None
            found.append(_claim(task, won, mine.last_s, mine.retimed, known))
    return found


def _claim(
    task: Task,
    record: Record,
    latency_s: float,
    again: Collection[Record],
    default: Record | None,
) -> Claim:
    if default is not None and default.trial.candidate.key == record.trial.candidate.key:
        default = None
    return Claim(
        task,
        record.trial.candidate,
        record.trial.instance,
        record.code_hash,
        latency_s,
        tuple(r.latency_s for r in again if r.latency_s is not None),
        default.trial.candidate if default is not None else None,
        default.latency_s if default is not None else None,
        record.provenance.device,
        record.provenance.toolchain,
    )


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
            assert counts.latency_s is not None
            default = known[-1] if known else None
            yield _claim(task, counts, counts.latency_s, again, default)


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
