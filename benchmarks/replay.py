"""Search policies compared on recorded spaces, without a device: trials to within 5 % of the best.

    python -m benchmarks.replay --json [--policy random,evolution,...] [--task GLOB]

Each policy runs whole sessions (the real loop, search and learner) on every recording, in virtual
time, with several seeds. A base model is trained on the other recordings only, so nothing is judged
on a task it has seen, and seeds are the best candidates of other tasks, answered by what was
recorded as their mutations. Trials count as in a budget; the default schedule is one of them.

    random              fresh samples, in the order they come
    evolution-blind     evolution with a model that knows nothing
    evolution           evolution with a cost model learned from scratch
    evolution+base      the same, boosted on top of a base model
    evolution+seeds     learned from scratch, begun with children of similar tasks' best
    evolution+base+seeds
    FILE.py:CLASS       a strategy of one's own

The first two depend on whole numbers alone: `--golden FILE` writes their curves, which a test
compares exactly.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tuner.candidate import Candidate
from tuner.cost_models import pretrained
from tuner.cost_models.base import CostModel
from tuner.cost_models.dataset import Examples
from tuner.cost_models.learner import InlineLearner
from tuner.cost_models.named import XGB_MODEL
from tuner.cost_models.random_model import RandomModel
from tuner.effort import EFFORTS
from tuner.errors import TunerError
from tuner.record import Measurement, Status
from tuner.replay.recording import Recording, fingerprint, load, stand_in
from tuner.replay.replay import Recorded, ReplayMeasurer, ReplaySpacePool, VirtualClock
from tuner.search.base import SearchMaker
from tuner.search.registry import no_seeds, search_maker
from tuner.search.transfer import Entry, Known, Seeds, signature
from tuner.session.limits import Limits
from tuner.session.machines import Machines
from tuner.session.session import Session
from tuner.storage.memory import MemoryStore
from tuner.task import Task
from tuner.user_code.find import find_layer
from tuner.user_code.load import load as load_layer

ROOT = Path(__file__).parents[1]
RECORDINGS = Path(__file__).parent / "recordings"
_WITHIN = 1.05
_SLOTS = 3
_SEEDS_OF_A_TASK = 4
_ROWS_OF_A_TASK = 600
"""Of each recording, that a base model learns from: about what a run measures of a task."""
_RANDOM_MODEL = "tuner.cost_models.random_model:RandomModel"
_FOREVER_S = 1e9
_GUIDED = "kernel:"
"""Names of spaces where a draft is chosen among many settings (see
`spaces.design_space.knob_space`)."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A way to search.

    Attributes:
        learns: whether the cost model is one that can.
        base: whether it begins with a base model; `seeds` likewise.
    """

    strategy: str | SearchMaker = "evolutionary"
    learns: bool = True
    base: bool = False
    seeds: bool = False


POLICIES = {
    "random": Policy("random", learns=False),
    "evolution-blind": Policy(learns=False),
    "evolution": Policy(),
    "evolution+base": Policy(base=True),
    "evolution+seeds": Policy(seeds=True),
    "evolution+base+seeds": Policy(base=True, seeds=True),
}
EXACT = ("random", "evolution-blind")
"""Policies whose curves are the same on every machine: no floating point decides anything."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One run: each improvement as its trial (from 1) and how many times the best known it took."""

    steps: tuple[tuple[int, float], ...]

    @property
    def trials_to_best(self) -> float:
        """Trials until within 5 % of the best known; infinite where it did not get there."""
        return next((t for t, ratio in self.steps if ratio <= _WITHIN), math.inf)

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


def policy_of(name: str) -> Policy:
    """A policy by its name; one's own strategy, with a model that knows nothing."""
    if name in POLICIES:
        return POLICIES[name]
    made: SearchMaker = load_layer(find_layer(name, "strategy"))
    return Policy(made, learns=False)


def run(
    recording: Recording, policy: Policy, warm_start: WarmStart, *, trials: int, seed: int
) -> Curve:
    """One session of a policy on one recorded task."""
    task, clock, store = recording.task, VirtualClock(), MemoryStore()
    base = warm_start.base(task.name) if policy.base else None
    rows = recording.recorded()
    default = _default(recording)
    store.put_tasks([task], {task.key: default.candidate.key})
    session = Session(
        [task],
        {task.key: default.candidate},
        machines=Machines(
            ReplayMeasurer({task.key: [*rows, default]}, slots=_SLOTS, clock=clock),
            ReplaySpacePool(
                {task.key: rows},
                load=partial(_loaded, policy.learns),
                guided=lambda space: policy.learns and space.startswith(_GUIDED),
            ),
            InlineLearner(
                seed, model=XGB_MODEL if policy.learns else _RANDOM_MODEL, base=base, clock=clock
            ),
        ),
        store=store,
        limits=Limits(trials, _FOREVER_S, 0.0),
        effort=EFFORTS["normal"],
        make_search=search_maker(policy.strategy, warm_start.seeds if policy.seeds else no_seeds),
        seed=seed,
        clock=clock,
        wall=clock,
    )
    session.run()
    return _curve(store, recording.best_s)


def _loaded(learns: bool, data: bytes) -> CostModel:
    from tuner.cost_models.xgb import XgbModel

    model: CostModel = XgbModel(0) if learns else RandomModel(0)
    model.load(data)
    return model


def _default(recording: Recording) -> Recorded:
    measured = recording.default or Measurement(Status.INVALID, error="not recorded")
    return Recorded(stand_in("default", "default"), recording.vectors[0], measured)


def _curve(store: MemoryStore, best_known_s: float) -> Curve:
    steps: list[tuple[int, float]] = []
    trial, best_s = 0, math.inf
    for record in store.scan():
        if record.trial.rung or not record.measurement.status.spends_budget:
            continue
        trial += 1
        if record.latency_s is not None and record.latency_s < best_s:
            best_s = record.latency_s
            steps.append((trial, round(best_s / best_known_s, 4)))
    return Curve(tuple(steps))


def compare(
    recordings: Mapping[str, Recording],
    names: Sequence[str],
    policies: Sequence[str],
    *,
    trials: int,
    seeds: int,
) -> dict[str, Any]:
    """Run every policy on every named task; the report that `--json` prints."""
    warm_start = WarmStart(recordings)
    points = [2**n for n in range(3, 30) if 2**n < trials] + [trials]
    tasks: dict[str, Any] = {}
    for name in names:
        recording = recordings[name]
        shown: dict[str, Any] = {"candidates": len(recording.rows) + sum(recording.refused)}
        shown["failed"] = shown["candidates"] - sum(r.status is Status.OK for r in recording.rows)
        shown["best_known_ms"] = recording.best_s * 1e3
        for policy in policies:
            curves = [
                run(recording, policy_of(policy), warm_start, trials=trials, seed=s)
                for s in range(seeds)
            ]
            shown[policy] = _summary(curves, points, trials)
        tasks[name] = shown
    return {
        "trials": trials,
        "seeds": seeds,
        "tasks": tasks,
        "geometric_mean_of_medians": {
            policy: _geometric_mean(
                [t[policy]["trials_to_within_5_percent"] for t in tasks.values()]
            )
            for policy in policies
        },
    }


def _summary(curves: Sequence[Curve], points: Sequence[int], trials: int) -> dict[str, Any]:
    """Runs that did not get there count as one trial more than there were."""
    needed = [min(curve.trials_to_best, trials + 1) for curve in curves]
    return {
        "trials_to_within_5_percent": statistics.median(needed),
        "least": min(needed),
        "most": max(needed),
        "reached": sum(n <= trials for n in needed),
        "curve": {str(p): statistics.median(c.at(p) for c in curves) for p in points},
    }


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(math.log(v) for v in values) / len(values)) if values else math.nan


def golden(
    folder: Path, recordings: Mapping[str, Path], *, trials: int, seeds: int
) -> dict[str, Any]:
    """Exact curves of the policies that are equal on every machine, and what they are of."""
    loaded = {name: load(path) for name, path in recordings.items()}
    warm_start = WarmStart(loaded)
    return {
        "folder": folder.resolve().relative_to(ROOT).as_posix(),
        "trials": trials,
        "recordings": {p.name: fingerprint(p) for p in recordings.values()},
        "curves": {
            name: {
                policy: [
                    [
                        list(s)
                        for s in run(r, POLICIES[policy], warm_start, trials=trials, seed=s).steps
                    ]
                    for s in range(seeds)
                ]
                for policy in EXACT
            }
            for name, r in loaded.items()
        },
    }


def found_in(folder: Path) -> dict[str, Path]:
    """Recordings of a folder by task name.

    Raises:
        TunerError: there are none.
    """
    found = {p.stem.removeprefix("cost-model-"): p for p in sorted(folder.glob("*.npz"))}
    if not found:
        raise TunerError(f"no recordings in {folder}: make some with benchmarks.record_space")
    return found


def _named(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in POLICIES and ".py" not in name]:
        known = ", ".join(POLICIES)
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no policy: there are {known}")
    return names


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recordings", type=Path, default=RECORDINGS, metavar="DIR")
    parser.add_argument("--policy", type=_named, default=list(POLICIES), metavar="NAME,...")
    parser.add_argument("--task", default="*", metavar="GLOB")
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--golden", type=Path, metavar="FILE", help="write the exact curves")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    try:
        paths = found_in(options.recordings)
    except TunerError as error:
        parser.error(str(error))
    if options.golden is not None:
        report = golden(options.recordings, paths, trials=options.trials, seeds=options.seeds)
        options.golden.write_text(json.dumps(report, separators=(",", ":")) + "\n")
        return 0
    names = [name for name in paths if fnmatch.fnmatchcase(name, options.task)]
    recordings = {name: load(path) for name, path in paths.items()}
    report = compare(recordings, names, options.policy, trials=options.trials, seeds=options.seeds)
    print(json.dumps(report) if options.json else _table(report, options.policy))
    return 0


def _table(report: Mapping[str, Any], policies: Sequence[str]) -> str:
    lines = [f"{'trials to within 5 %':24}" + "".join(f"{p:>22}" for p in policies)]
    for name, task in report["tasks"].items():
        cells = (
            f"{task[p]['trials_to_within_5_percent']:g} ({task[p]['reached']}/{report['seeds']})"
            for p in policies
        )
        lines.append(f"{name:24}" + "".join(f"{cell:>22}" for cell in cells))
    means = report["geometric_mean_of_medians"]
    lines.append(f"{'geometric mean':24}" + "".join(f"{means[p]:>22.1f}" for p in policies))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
