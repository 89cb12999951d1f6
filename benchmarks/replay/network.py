"""Recorded tasks tuned together, as the network that they might make up: who gets the trials.

    python -m benchmarks.replay.network --json [--policy NAME,...] [--recordings DIR]
        [--allocator session,share] [--noise NAME] [--trials 512] [--seeds 10]

Each seed draws the tasks' shares of the network's least time: the largest is often a hundred times
the least, as in networks. After each trial the network takes what its tasks' fastest kernels take,
by the times that the search was told: these are looked up as true times. Printed is its ratio to
the least after so many trials, and that of the kernels chosen in the end.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.replay.command import load_recordings
from benchmarks.replay.policies import (
    POLICIES,
    RECORDINGS,
    WarmStart,
    policy_of,
    search,
    true_s,
)
from tuner.replay.noise import NOISES
from tuner.replay.recording import Recording
from tuner.session.allocator import Allocator
from tuner.storage.sqlite_store import MemoryStore
from tuner.view.task_view import TaskView
from tuner.view.winners import choose_best

_UNEQUAL = 1.3
"""Standard deviation of the logarithm of a task's share."""


class Share:
    """The largest share of the network's time for each trial that it had."""

    def order(self, views: Sequence[TaskView]) -> Sequence[str]:
        """See `Allocator`."""

        def worth(v: TaskView) -> float:
            return v.weight * v.best_s / (1 + v.trials) if v.best_s else math.inf

        return [v.key for v in sorted(views, key=worth, reverse=True)]


ALLOCATORS: Mapping[str, Allocator | None] = {"session": None, "share": Share()}


def weights_of(recordings: Sequence[Recording], seed: int) -> list[float]:
    """Weights that give the tasks random shares of the network's least time."""
    rng = random.Random(f"shares {seed}")
    return [math.exp(rng.gauss(0.0, _UNEQUAL)) / r.best_s for r in recordings]


def totals(
    store: MemoryStore, recordings: Sequence[Recording], weights: Sequence[float]
) -> tuple[list[float], float]:
    """The network's time after each trial, from when every task has a kernel, and with the kernels
    that were chosen in the end; both over the least."""
    times_s = {r.task.key: true_s(r) for r in recordings}
    weight = {r.task.key: w for r, w in zip(recordings, weights, strict=True)}
    least_s = math.fsum(w * r.best_s for r, w in zip(recordings, weights, strict=True))
    told_s = dict.fromkeys(weight, math.inf)
    fastest_s = dict.fromkeys(weight, math.inf)
    after = []
    for record in store.scan():
        if record.trial.rung or not record.measurement.status.spends_budget:
            continue
        key = record.trial.task_key
        if record.latency_s is not None and record.latency_s < told_s[key]:
            told_s[key] = record.latency_s
            fastest_s[key] = times_s[key][record.trial.candidate.key]
        after.append(math.fsum(weight[k] * s for k, s in fastest_s.items()) / least_s)
    won = {key: choose_best(store, key) for key in weight}
    chosen = math.fsum(
        weight[key] * (times_s[key][record.trial.candidate.key] if record else math.inf)
        for key, record in won.items()
    )
    return after, chosen / least_s


def compare(
    recordings: Sequence[Recording],
    policies: Sequence[str],
    allocators: Sequence[str],
    *,
    trials: int,
    seeds: int,
    noise: str,
) -> dict[str, Any]:
    """Medians over the seeds, for each policy with each allocator."""
    points = [n for n in (2**p for p in range(4, 30)) if n < trials] + [trials]
    warm_start = WarmStart({r.task.name: r for r in recordings})
    report: dict[str, Any] = {}
    for policy in policies:
        for allocator in allocators:
            curves, chosen = [], []
            for seed in range(seeds):
                weights = weights_of(recordings, seed)
                store = search(
                    recordings,
                    policy_of(policy),
                    warm_start,
                    trials=trials,
                    seed=seed,
                    noise=NOISES[noise],
                    weights=weights,
                    allocator=ALLOCATORS[allocator],
                )
                after, choice = totals(store, recordings, weights)
                curves.append(after)
                chosen.append(choice)
            report[f"{policy}, {allocator}"] = {
                "curve": {
                    str(p): statistics.median(after[min(p, len(after)) - 1] for after in curves)
                    for p in points
                },
                "choice": statistics.median(chosen),
            }
    return {"trials": trials, "seeds": seeds, "noise": noise, "ratio_to_the_least": report}


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recordings", type=Path, default=RECORDINGS, metavar="DIR")
    parser.add_argument("--policy", default="evolution", metavar="NAME,...", help=str([*POLICIES]))
    parser.add_argument("--allocator", default="session,share", help=str([*ALLOCATORS]))
    parser.add_argument("--trials", type=int, default=512)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--noise", choices=NOISES, default="normal")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    recordings = load_recordings(parser, options.recordings)
    allocators = options.allocator.split(",")
    if unknown := [name for name in allocators if name not in ALLOCATORS]:
        parser.error(f"{unknown[0]} is no allocator: there are {', '.join(ALLOCATORS)}")
    report = compare(
        recordings,
        options.policy.split(","),
        allocators,
        trials=options.trials,
        seeds=options.seeds,
        noise=options.noise,
    )
    if options.json:
        print(json.dumps(report))
        return 0
    for name, row in report["ratio_to_the_least"].items():
        curve = "  ".join(f"{point}: {ratio:.3f}" for point, ratio in row["curve"].items())
        print(f"{name:40} {curve}  choice {row['choice']:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
