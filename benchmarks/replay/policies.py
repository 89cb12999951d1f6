"""Policies that search recorded spaces: whole sessions in virtual time, judged by true times."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from cluster.app.driver.warm_start import base_for
from tuner.candidate import Candidate
from tuner.cost_models import pretrained
from tuner.cost_models.base import CostModel
from tuner.cost_models.dataset import Examples
from tuner.cost_models.learner import InlineLearner
from tuner.cost_models.named import XGB_MODEL
from tuner.cost_models.prior import NO_PRIORS, Priors, load_priors
from tuner.cost_models.random_model import RandomModel
from tuner.effort import EFFORTS
from tuner.errors import TunerError
from tuner.record import Measurement, Status
from tuner.replay.noise import Noise, keep_true
from tuner.replay.recorded import Recorded
from tuner.replay.recording import Recording, stand_in
from tuner.replay.replay import ReplayMeasurer, ReplaySpacePool, VirtualClock
from tuner.request.options import SHIPPED
from tuner.search.base import SearchMaker
from tuner.search.evolution import Evolution
from tuner.search.pool.rules import Neighbours
from tuner.search.pool.static_search import StaticSearch
from tuner.search.registry import no_seeds, search_maker
from tuner.search.transfer import Entry, Known, Seeds, signature
from tuner.session.allocator import Allocator
from tuner.session.limits import Limits
from tuner.session.machines import Machines
from tuner.session.session import Session
from tuner.storage.facts import Defaults, Tasks
from tuner.storage.sqlite_store import MemoryStore
from tuner.task import Task
from tuner.user_code.find import find_layer
from tuner.user_code.load import load as load_layer
from tuner.view.progress import Snapshot
from tuner.view.winners import choose_best

RECORDINGS = Path(__file__).parents[1] / "recordings"
_SLOTS = 3
_SEEDS_OF_A_TASK = 4
_ROWS_OF_A_TASK = 600
"""Of each recording, that a base model learns from: about what a run measures of a task."""
_RANDOM_MODEL = "tuner.cost_models.random_model:RandomModel"
_FOREVER_S = 1e9


@dataclass(frozen=True, slots=True)
class Policy:
    """A way to search.

    Attributes:
        learns: whether the cost model is one that can.
        base: whether it begins with a base model of traces; `prior` with the one of settings
            that ships, and `seeds` with seeds.
    """

    strategy: str | SearchMaker = "evolutionary"
    learns: bool = True
    base: bool = False
    seeds: bool = False
    prior: bool = False


POLICIES = {
    "random": Policy("random", learns=False),
    "process": Policy(),
    "local": Policy(lambda task, seed: StaticSearch(task, seed, Neighbours(), Seeds())),
    "evolution": Policy(lambda task, seed: Evolution(task, seed)),
    "evolution-blind": Policy(lambda task, seed: Evolution(task, seed), learns=False),
    "process+prior": Policy(prior=True),
    "process+seeds": Policy(seeds=True),
    "evolution+base": Policy(lambda task, seed: Evolution(task, seed), base=True),
}
"""Tasks without a template evolve under `process` too."""
EXACT = ("random", "evolution-blind")
"""Policies whose curves are the same on every machine: no floating point decides anything."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One run: each improvement as its trial (from 1) and how many times the best known it took.

    Attributes:
        choice: how many times the best known the kernel takes that the run chose in the end.
    """

    steps: tuple[tuple[int, float], ...]
    choice: float = math.inf

    def trials_to(self, ratio: float) -> float:
        """Trials until a kernel took at most so many times the best known; infinite for never."""
        return next((t for t, reached in self.steps if reached <= ratio), math.inf)

    def at(self, trial: int) -> float:
        """How many times the best known was reached by then; infinite for nothing yet."""
        return min((ratio for t, ratio in self.steps if t <= trial), default=math.inf)


@dataclass(frozen=True, slots=True)
class WarmStart:
    """What may be known before a run begins: all recordings but the one under test."""

    recordings: Mapping[str, Recording]
    models: dict[str, bytes] = field(default_factory=dict)

    def base(self, name: str) -> bytes:
        """A model trained on the other tasks; trained once."""
        if name not in self.models:
            others = [r for n, r in sorted(self.recordings.items()) if n != name]
            self.models[name] = pretrained.train(_together(others))
        return self.models[name]

    def seeds(self, task: Task) -> Seeds:
        """The best candidates of similar recorded tasks."""
        entries = [
            Entry(
                r.task,
                signature(r.task.module),
                tuple(_best_candidates(r)),
            )
            for _, r in sorted(self.recordings.items())
            if r.task.key != task.key
        ]
        return Known(tuple(entries)).seeds(task)


def _best_candidates(recording: Recording) -> list[Candidate]:
    spaces = {row.key: row.space for row in recording.rows}
    return [stand_in(k, spaces[k]) for k in recording.best_keys(_SEEDS_OF_A_TASK)]


def _together(recordings: Sequence[Recording]) -> Examples:
    parts = []
    for number, recording in enumerate(recordings):
        rows = recording.examples()
        order = np.random.default_rng(number).permutation(len(rows))[:_ROWS_OF_A_TASK]
        order.sort()
        parts.append(
            Examples(
                rows.features[order],
                rows.latencies_s[order],
                rows.groups[order],
                rows.bounds[order],
            )
        )
    if not parts:
        raise TunerError("a base model needs recordings of other tasks")
    return pretrained.together(parts)


def load_shipped_priors(target: str) -> Priors:
    """What ships for a target's settings."""
    return load_priors(base_for(SHIPPED, target, None).priors)


def policy_of(name: str) -> Policy:
    """A policy by its name; one's own strategy, with a model that knows nothing."""
    if name in POLICIES:
        return POLICIES[name]
    made: SearchMaker = load_layer(find_layer(name, "strategy"))
    return Policy(made, learns=False)


def run(
    recording: Recording,
    policy: Policy,
    warm_start: WarmStart,
    *,
    trials: int,
    seed: int,
    noise: Noise = keep_true,
) -> Curve:
    """One session of a policy on one recorded task."""
    store = search([recording], policy, warm_start, trials=trials, seed=seed, noise=noise)
    return _curve(store, recording)


def search(
    recordings: Sequence[Recording],
    policy: Policy,
    warm_start: WarmStart,
    *,
    trials: int,
    seed: int,
    noise: Noise = keep_true,
    weights: Sequence[float] = (),
    allocator: Allocator | None = None,
    until: float = 0.0,
    on_end: Callable[[Snapshot], None] = lambda snapshot: None,
) -> MemoryStore:
    """The records of one session of a policy on recorded tasks.

    Args:
        weights: of the tasks in the network that they make up; all 1 where it is empty.
        allocator: in the place of the session's own.
        until: see `tuner.session.limits.Limits`.
        on_end: is called with the last snapshot.
    """
    clock, store = VirtualClock(), MemoryStore()
    weighted = weights or [1.0] * len(recordings)
    tasks = [replace(r.task, weight=w) for r, w in zip(recordings, weighted, strict=True)]
    base = warm_start.base(tasks[0].name) if policy.base else None
    rows = {r.task.key: r.recorded() for r in recordings}
    defaults = {r.task.key: default_of(r) for r in recordings}
    store.put(
        Tasks(tasks), Defaults({key: default.candidate.key for key, default in defaults.items()})
    )
    measured = {key: [*mine, defaults[key]] for key, mine in rows.items()}
    session = Session(
        tasks,
        {key: default.candidate for key, default in defaults.items()},
        machines=Machines(
            ReplayMeasurer(measured, slots=_SLOTS, clock=clock, noise=noise, seed=seed),
            ReplaySpacePool(rows, load=partial(load_model, policy.learns)),
            InlineLearner(
                seed, model=XGB_MODEL if policy.learns else _RANDOM_MODEL, base=base, clock=clock
            ),
        ),
        store=store,
        limits=Limits(trials, _FOREVER_S, _FOREVER_S / 2, until),
        effort=EFFORTS["normal"],
        make_search=search_maker(
            policy.strategy,
            warm_start.seeds if policy.seeds else no_seeds,
            priors=load_shipped_priors(tasks[0].target) if policy.prior else NO_PRIORS,
        ),
        seed=seed,
        allocator=allocator,
        clock=clock,
        wall=clock,
    )
    session.run()
    on_end(session.snapshot())
    return store


def load_model(learns: bool, data: bytes) -> CostModel:
    """The model that a learner sent, or one that knows nothing."""
    from tuner.cost_models.xgb import XgbModel

    model: CostModel = XgbModel(0) if learns else RandomModel(0)
    model.load(data)
    return model


def default_of(recording: Recording) -> Recorded:
    """The task's default schedule, as a candidate."""
    measured = recording.default or Measurement(Status.INVALID, error="not recorded")
    return Recorded(stand_in("default", "default"), recording.vectors[0], measured)


def true_s(recording: Recording) -> dict[str, float]:
    """The true time of each candidate that gives one, the default included, by its key."""
    known = [*recording.recorded(), default_of(recording)]
    return {
        r.candidate.key: latency_s
        for r in known
        if (latency_s := r.measurement.latency_s) is not None
    }


def _curve(store: MemoryStore, recording: Recording) -> Curve:
    times_s = true_s(recording)
    steps: list[tuple[int, float]] = []
    trial, best_s = 0, math.inf
    for record in store.scan():
        if record.trial.rung or not record.measurement.status.spends_budget:
            continue
        trial += 1
        latency_s = times_s.get(record.trial.candidate.key, math.inf)
        if record.latency_s is not None and latency_s < best_s:
            best_s = latency_s
            steps.append((trial, round(best_s / recording.best_s, 4)))
    chosen = choose_best(store, recording.task.key)
    chosen_s = times_s[chosen.trial.candidate.key] if chosen else math.inf
    return Curve(tuple(steps), chosen_s / recording.best_s)


def find_recordings(folder: Path) -> dict[str, Path]:
    """Recordings of a folder by task name.

    Raises:
        TunerError: there are none.
    """
    found = {p.stem.removeprefix("cost-model-"): p for p in sorted(folder.glob("*.npz"))}
    if not found:
        raise TunerError(
            f"no recordings in {folder}: make some with benchmarks.replay.record_settings"
        )
    return found
