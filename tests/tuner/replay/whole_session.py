"""A whole session in virtual time, printed trial by trial: several processes must agree.

    python -m tests.tuner.replay.whole_session recorded|real SEED TRIALS

`recorded` searches recorded spaces with the real cost model, begun with a base model and seeds.
`real` searches real spaces, of static programs and one with a symbolic dimension; times are made
from the candidates' keys.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tuner.candidate import Candidate
from tuner.cost_models.learner import FitPolicy, InlineLearner
from tuner.effort import EFFORTS
from tuner.measure import Measurer, SpacePool
from tuner.record import Measurement, Provenance, Record, Status, Trial
from tuner.replay.replay import ReplayMeasurer, ReplaySpacePool, VirtualClock
from tuner.search.base import SearchMaker
from tuner.search.registry import search_maker
from tuner.session.limits import Limits
from tuner.session.machines import Machines
from tuner.session.session import Session
from tuner.storage.facts import Defaults, Tasks
from tuner.storage.sqlite_store import MemoryStore
from tuner.task import Task

ROOT = Path(__file__).parents[3]
_TASKS = ("gemm-odd", "depthwise", "conv-nhwc")
_ELSEWHERE = "gemm-512"
_SLOTS = 3
_OFTEN = FitPolicy(first=8, rest=0.0)


class HashedMeasurer:
    """A machine whose times follow from the trials' keys alone, in virtual time."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._ends: list[tuple[float, int, Trial, Measurement]] = []
        self._number = 0

    def free(self) -> int:
        return _SLOTS - len(self._ends)

    def submit(self, trials: Sequence[Trial], cutoff_s: float | None = None) -> None:
        for trial in trials:
            latency_s, end_s = self._times(trial)
            good = cutoff_s is None or latency_s <= cutoff_s
            status = Status.OK if good else Status.CENSORED
            self._number += 1
            entry = (end_s, self._number, trial, Measurement(status, (latency_s,), "", 0.5, 0.5))
            heapq.heappush(self._ends, entry)

    def collect(self, timeout_s: float) -> list[Record]:
        until_s = self._clock.now_s + timeout_s
        if not self._ends or self._ends[0][0] > until_s:
            self._clock.now_s = until_s
            return []
        end_s, _, trial, measurement = heapq.heappop(self._ends)
        self._clock.now_s = max(self._clock.now_s, end_s)
        where = Provenance("hashed", "hashed", "hashed")
        return [Record(trial, measurement, where, 1, self._clock.now_s)]

    def toolchain(self) -> str:
        return "hashed"

    def close(self) -> None:
        self._ends.clear()

    def _times(self, trial: Trial) -> tuple[float, float]:
        text = json.dumps([trial.task_key, trial.candidate.key, trial.instance, trial.rung])
        words = hashlib.sha256(text.encode()).digest()
        latency_s = 1e-4 * (1 + int.from_bytes(words[:4]) / 2**32)
        return latency_s, self._clock.now_s + 0.5 + words[4] / 256


def searched(
    tasks: Mapping[Task, Candidate],
    measurer: Measurer,
    pool: SpacePool,
    make_search: SearchMaker,
    clock: VirtualClock,
    *,
    base: bytes | None,
    seed: int,
    trials: int,
) -> MemoryStore:
    """A session's records."""
    store = MemoryStore()
    store.put(Tasks([*tasks]), Defaults({t.key: c.key for t, c in tasks.items()}))
    session = Session(
        [*tasks],
        {t.key: c for t, c in tasks.items()},
        machines=Machines(
            measurer, pool, InlineLearner(seed, base=base, policy=_OFTEN, clock=clock)
        ),
        store=store,
        limits=Limits(trials, 1e9, 1e8),
        effort=EFFORTS["quick"],
        make_search=make_search,
        seed=seed,
        clock=clock,
        wall=clock,
    )
    session.run()
    return store


def recorded(seed: int, trials: int) -> MemoryStore:
    """A session on recorded spaces."""
    from benchmarks.replay.policies import (
        RECORDINGS,
        WarmStart,
        default_of,
        find_recordings,
        load_model,
    )
    from tuner.replay.recording import load

    recordings = {name: load(find_recordings(RECORDINGS)[name]) for name in (*_TASKS, _ELSEWHERE)}
    known = WarmStart(recordings)
    spaces = {recordings[n].task.key: recordings[n].recorded() for n in _TASKS}
    defaults = {recordings[n].task: default_of(recordings[n]) for n in _TASKS}
    clock = VirtualClock()
    measured = {t.key: [*spaces[t.key], default] for t, default in defaults.items()}
    return searched(
        {task: default.candidate for task, default in defaults.items()},
        ReplayMeasurer(measured, slots=_SLOTS, clock=clock),
        ReplaySpacePool(spaces, load=partial(load_model, True)),
        search_maker("evolutionary", known.seeds),
        clock,
        base=known.base(_TASKS[0]),
        seed=seed,
        trials=trials,
    )


def real(seed: int, trials: int) -> MemoryStore:
    """A session on real spaces."""
    from spaces.design_space.default_schedule import default_candidate
    from tests.actors.inline_space_pool import InlineSpacePool

    clock = VirtualClock()
    tasks = {task: default_candidate(task) for task in real_tasks()}
    return searched(
        tasks,
        HashedMeasurer(clock),
        InlineSpacePool([*tasks], capacity=16),
        search_maker("evolutionary", max_kernels=2),
        clock,
        base=None,
        seed=seed,
        trials=trials,
    )


def real_tasks() -> list[Task]:
    """The programs of a small network, and one with a symbolic dimension."""
    from spaces.frontends.model import load_model
    from spaces.lowering.extract_tasks import extract
    from spaces.lowering.lower import lower
    from tuner.request.model_spec import ModelSpec

    target = '{"kind":"llvm","num-cores":2}'
    specs = (
        ModelSpec(f"{ROOT}/examples/gemm.py:gemm", args=(("m", 48), ("n", 40), ("k", 32))),
        ModelSpec(
            f"{ROOT}/examples/dense.py:dense",
            args=(("features", 48), ("layers", 1)),
            dims=(("T", (1, 3, 7)),),
        ),
    )
    found = []
    for spec in specs:
        model = load_model(spec)
        found += extract(lower(model.module, target), target, None, model.shapes)
    return found


def main() -> None:
    """Print each record as a line: the trial, how it ended, and when."""
    kind, seed, trials = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    store = {"recorded": recorded, "real": real}[kind](seed, trials)
    for record in store.scan():
        key: Any = record.trial.key
        line = [key.task_key, key.candidate_key, key.instance, key.rung]
        print(json.dumps([*line, record.measurement.status, record.latency_s, record.time_s]))


if __name__ == "__main__":
    main()
