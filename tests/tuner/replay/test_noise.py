"""Noise of replayed timings: unbiased or one-sided, and the same for the same trial."""

from __future__ import annotations

import random
import statistics

import numpy as np
import pytest

from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Status, Trial
from tuner.replay.noise import NOISES
from tuner.replay.recorded import Recorded
from tuner.replay.replay import ReplayMeasurer, VirtualClock

ROUNDS_S = (1.1e-3, 1.2e-3, 1.3e-3)


def timings(name: str, count: int = 2000) -> list[float]:
    rng = random.Random(0)
    return [NOISES[name](1e-3, ROUNDS_S, rng) for _ in range(count)]


def test_without_noise_a_timing_is_the_true_time() -> None:
    assert set(timings("none")) == {1e-3}


def test_normal_noise_is_as_often_above_as_below() -> None:
    assert statistics.median(timings("normal")) == pytest.approx(1e-3, rel=0.01)


def test_a_heavy_tail_makes_some_timings_much_slower_and_none_faster() -> None:
    plain, tailed = sorted(timings("normal")), sorted(timings("tailed"))
    assert tailed[-20] > 1.3 * plain[-20]
    assert tailed[20] == pytest.approx(plain[20], rel=0.03)


def test_recorded_noise_gives_rounds_that_were_recorded() -> None:
    assert set(timings("recorded")) == set(ROUNDS_S)
    assert NOISES["recorded"](1e-3, (), random.Random(0)) == 1e-3


def test_each_timing_of_a_trial_has_its_own_noise_and_a_seed_repeats_it() -> None:
    candidate = Candidate(CandidateKind.TRACE, "[1]", "test")
    space = {
        "task": [Recorded(candidate, np.zeros(1, np.float32), Measurement(Status.OK, (1e-3,)))]
    }

    def time(seed: int) -> list[float | None]:
        measurer = ReplayMeasurer(
            space, slots=1, clock=VirtualClock(), noise=NOISES["normal"], seed=seed
        )
        measurer.submit([Trial("task", candidate, rung=rung) for rung in (0, 0, 1)])
        return [measurer.collect(1.0)[0].latency_s for _ in range(3)]

    assert time(1) == time(1)
    assert len({*time(1), *time(2)}) == 6
