"""Sessions on recorded spaces, in virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from tuner.arrays import Features
from tuner.candidate import Candidate, CandidateKind
from tuner.cost_models.learner import InlineLearner
from tuner.effort import Effort
from tuner.record import Measurement, Provenance, Record, Status
from tuner.replay.recorded import Recorded, RecordedSpace
from tuner.replay.replay import ReplayMeasurer, ReplaySpacePool, VirtualClock
from tuner.search.base import SearchMaker
from tuner.search.registry import search_maker
from tuner.session.allocator import Allocator
from tuner.session.limits import Limits
from tuner.session.machines import Machines
from tuner.session.observer import Observer
from tuner.session.session import Session
from tuner.storage.base import RecordStore
from tuner.storage.facts import Defaults, Tasks
from tuner.task import Task

EFFORT = Effort("test", trials_per_task=10, time_budget_s=100.0, finalists=8)


def candidate(task: str, number: int) -> Candidate:
    return Candidate(CandidateKind.TRACE, json.dumps([task, number]), "test")


def recorded_space(tasks: Sequence[str], size: int) -> RecordedSpace:
    """Candidates on a line: the nearer to number 70, the faster; every ninth one fails."""

    def measured(number: int) -> Measurement:
        if number % 9 == 4:
            return Measurement(Status.RUN_FAILED, error="crash", build_s=0.1, run_s=0.1)
        latency_s = 1e-3 * (1 + abs(number - 70) / 50)
        return Measurement(Status.OK, (latency_s,) * 3, build_s=0.1, run_s=0.2)

    def features(number: int) -> Features:
        return np.array([number, 1.0], dtype=np.float32)

    return {
        task: [Recorded(candidate(task, n), features(n), measured(n)) for n in range(size)]
        for task in tasks
    }


class CompiledWith(ReplayMeasurer):
    """Says in each record which toolchain it is of.

    Args:
        fault: what a user's object did wrong from the tenth record on; empty is nothing.
        luck: factor of a candidate's time in the search alone, by its key.
    """

    def __init__(
        self,
        toolchain: str,
        spaces: RecordedSpace,
        *,
        slots: int,
        clock: VirtualClock,
        fault: str = "",
        luck: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._fault, self._told, self._luck = fault, 0, luck
        super().__init__(spaces, slots=slots, clock=clock)
        self._provenance = Provenance("worker", "device", toolchain)

    def toolchain(self) -> str:
        return self._provenance.toolchain

    def collect(self, timeout_s: float) -> list[Record]:
        return [self._as_told(record) for record in super().collect(timeout_s)]

    def _as_told(self, record: Record) -> Record:
        self._told += 1
        fault = self._fault if self._told >= 10 else ""
        of, factor = record.measurement, self._luck.get(record.trial.candidate.key, 1.0)
        samples_s = of.samples_s if record.trial.rung else tuple(factor * s for s in of.samples_s)
        measurement = replace(of, fault=fault, samples_s=samples_s)
        return replace(record, provenance=self._provenance, measurement=measurement)


def make_session(
    spaces: RecordedSpace,
    store: RecordStore,
    *,
    trials: int,
    time_s: float = 1000.0,
    weights: dict[str, float] | None = None,
    observers: Sequence[Observer] = (),
    strategy: str = "evolutionary",
    toolchain: str = "",
    make_search: SearchMaker | None = None,
    adapt: Callable[[], None] = lambda: None,
    waits: Callable[[], str] | None = None,
    on_begin: Callable[[float], None] = lambda deadline_s: None,
    clock: VirtualClock | None = None,
    allocator: Allocator | None = None,
    fault: str = "",
    libraries: RecordedSpace = MappingProxyType({}),
    luck: Mapping[str, float] = MappingProxyType({}),
    until: float = 0.0,
) -> Session:
    clock = clock or VirtualClock()
    measured = {key: [*rows, *libraries.get(key, ())] for key, rows in spaces.items()}
    tasks = [
        Task(key, f"name-{key}", "module", "target", weight=(weights or {}).get(key, 1.0))
        for key in spaces
    ]
    store.put(Tasks(tasks), Defaults({t.key: candidate(t.key, 0).key for t in tasks}))
    return Session(
        tasks,
        {t.key: candidate(t.key, 0) for t in tasks},
        libraries={key: [row.candidate for row in rows] for key, rows in libraries.items()},
        machines=Machines(
            CompiledWith(toolchain, measured, slots=4, clock=clock, fault=fault, luck=luck),
            ReplaySpacePool(spaces),
            InlineLearner(model="tuner.cost_models.random_model:RandomModel", clock=clock),
            adapt=adapt,
            waits=waits,
        ),
        store=store,
        limits=Limits(trials, time_s, 0.1 * time_s, until),
        effort=EFFORT,
        make_search=make_search or search_maker(strategy),
        seed=7,
        observers=observers,
        allocator=allocator,
        on_begin=on_begin,
        clock=clock,
        wall=clock,
    )


def searched(store: RecordStore) -> list[Record]:
    """The records of the search, without re-timings."""
    return [record for record in store.scan() if not record.trial.rung]
