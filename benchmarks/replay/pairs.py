"""How well pairs of settings near the best are put in order: `python -m benchmarks.replay.pairs`.

A search by `tuner.search.pool.rules.Improvement` tries so many settings of a recorded space, one
after the other, with the noise that is asked for. Then, of the fastest settings that it has not
tried, the share of pairs is counted that the process orders as true times do, and that the estimate
does.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import say
from benchmarks.replay.policies import RECORDINGS, find_recordings, true_s
from tuner.candidate import Draft
from tuner.cost_models.base import pairwise_accuracy
from tuner.replay.noise import NOISES, Noise
from tuner.replay.recorded_settings import RecordedSettings
from tuner.replay.recording import Recording, load
from tuner.search.pool.rules import Improvement, Trials, fit
from tuner.search.pool.settings_pool import SettingsPool

_NEAR = 150
"""Fastest settings, of those that were not tried, whose pairs are judged."""


def judge(recording: Recording, trials: int, seed: int, noise: Noise) -> dict[str, float]:
    """The shares of pairs in order, by the process and by the estimate."""
    known = [r for r in recording.recorded() if RecordedSettings.fits([r])]
    pool, times_s = SettingsPool(), true_s(recording)
    pool.add(RecordedSettings(known).settings(Draft("task", 0, 0, listing=True)))
    rounds = {r.candidate.key: r.rounds_s for r in known}
    rng, rule, tried = random.Random(seed), Improvement(seed), Trials()
    while len(tried) < min(trials, len(pool)):
        number = rule.choose(pool, tried, tried.untried(pool)).number
        key = pool.candidate(number).key
        if key not in times_s:
            tried.failed.add(number)
            continue
        tried.times_s[number] = noise(times_s[key], rounds[key], rng)
    of_setting = {n: times_s.get(pool.candidate(n).key) for n in tried.untried(pool).tolist()}
    timed = sorted((s, n) for n, s in of_setting.items() if s is not None)[:_NEAR]
    numbers = [n for _, n in timed]
    latencies_s = np.array([s for s, _ in timed], dtype=np.float32)
    groups = np.zeros(len(numbers), dtype=np.int32)
    means = fit(pool, tried.times_s).means(pool.features[numbers])
    scores = {"process": -means, "estimate": -pool.estimates_s[numbers]}
    return {
        name: pairwise_accuracy(np.asarray(score, dtype=np.float32), latencies_s, groups) or 0.0
        for name, score in scores.items()
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay.pairs")
    parser.add_argument("--recordings", type=Path, default=RECORDINGS)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--noise", choices=NOISES, default="none")
    options = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    for name, path in find_recordings(options.recordings).items():
        found = [
            judge(load(path), options.trials, seed, NOISES[options.noise])
            for seed in range(options.seeds)
        ]
        rows[name] = {by: statistics.fmean(f[by] for f in found) for by in found[0]}
        say(f"{name} {json.dumps(rows[name])}")
    means: dict[str, Any] = {
        by: statistics.fmean(row[by] for row in rows.values()) for by in ("process", "estimate")
    }
    print(json.dumps({"noise": options.noise, "trials": options.trials, **means, "tasks": rows}))


if __name__ == "__main__":
    main()
