"""The measurement ladder: hopeless kernels cost one run, likely ones get the samples."""

from __future__ import annotations

import pytest

from spaces.devices.ladder import Timed, time_kernel
from spaces.devices.stopwatch import NOTHING_LOADED, Loaded
from tuner.effort import EFFORTS, Timing
from tuner.record import NO_CONDITIONS, Conditions

TIMING = Timing(sample_s=0.002, total_s=0.020, min_samples=3, max_samples=20)
BEST_S = 1e-3
CUTOFF_S = TIMING.cutoff_s(BEST_S)


class Steady:
    """A stopwatch on which a kernel takes the same time in every run; counts its runs."""

    def __init__(self, run_s: float) -> None:
        self._run_s = run_s
        self.spent_s = 0.0

    def run_once(self, loaded: Loaded) -> float:
        self.spent_s += self._run_s
        return self._run_s

    def wake(self, loaded: Loaded, runs: int) -> None:
        self.spent_s += self._run_s * max(0, runs)

    def samples(self, loaded: Loaded, runs: int, count: int) -> tuple[float, ...]:
        self.spent_s += self._run_s * (1 + runs * count)  # it makes one run untimed
        return (self._run_s,) * count

    def conditions(self) -> Conditions:
        return NO_CONDITIONS


def timed(run_s: float, cutoff_s: float | None = CUTOFF_S) -> tuple[Timed, float]:
    watch = Steady(run_s)
    return time_kernel(watch, NOTHING_LOADED, TIMING, cutoff_s), watch.spent_s


def test_one_run_is_enough_for_a_hopeless_kernel() -> None:
    result, spent_s = timed(30 * BEST_S)
    assert result == Timed((30 * BEST_S,), censored=True)
    assert spent_s == pytest.approx(30 * BEST_S)


def test_beyond_the_cutoff_it_is_censored_after_a_few_runs() -> None:
    result, spent_s = timed(4.5 * BEST_S)
    assert result == Timed((4.5 * BEST_S,), censored=True)
    assert spent_s == pytest.approx(4 * 4.5 * BEST_S)


def test_one_slow_run_that_is_a_strangers_doing_cuts_nothing_off() -> None:
    class Disturbed(Steady):
        def samples(self, loaded: Loaded, runs: int, count: int) -> tuple[float, ...]:
            slow, self._run_s = self._run_s, BEST_S
            return (slow,) * count

    watch = Disturbed(6 * BEST_S)
    assert not time_kernel(watch, NOTHING_LOADED, TIMING, CUTOFF_S).censored


@pytest.mark.parametrize("slower", [1.3, 2.0, 3.9])
def test_one_that_is_not_near_the_best_gets_the_probe_only(slower: float) -> None:
    result, spent_s = timed(slower * BEST_S)
    assert not result.censored
    assert len(result.samples_s) == TIMING.min_samples
    assert spent_s <= 10 * slower * BEST_S


@pytest.mark.parametrize("slower", [0.2, 1.0, 1.05])
def test_one_that_is_near_the_best_gets_more_samples(slower: float) -> None:
    result, spent_s = timed(slower * BEST_S)
    assert TIMING.min_samples < len(result.samples_s) <= TIMING.max_samples
    assert spent_s == pytest.approx(TIMING.total_s, rel=0.4)


def test_without_a_time_to_beat_everything_is_timed_in_full() -> None:
    result, _ = timed(5e-3, cutoff_s=TIMING.cutoff_s(None))
    assert len(result.samples_s) == 4
    slow, _ = timed(0.09, cutoff_s=None)
    assert len(slow.samples_s) == TIMING.min_samples


def test_a_run_that_fills_samples_is_timed_by_itself_after_one_that_warms_up() -> None:
    result, spent_s = timed(0.009, cutoff_s=TIMING.cutoff_s(0.006))
    assert result == Timed((0.009,) * 3)
    assert spent_s == pytest.approx(4 * 0.009)


def test_one_that_is_too_long_to_need_warming_up_counts_from_the_first() -> None:
    result, spent_s = timed(0.030, cutoff_s=TIMING.cutoff_s(0.030))
    assert result == Timed((0.030,) * 3)
    assert spent_s == pytest.approx(3 * 0.030)


def test_whoever_wants_nothing_cut_off_has_no_time_to_beat() -> None:
    assert EFFORTS["quick"].timing.cutoff_s(BEST_S) is not None
    assert EFFORTS["quick"].uncut.timing.cutoff_s(BEST_S) is None


@pytest.mark.parametrize(("run_s", "runs"), [(0.11, 2), (0.9, 2), (1.1, 1), (20.0, 1)])
def test_a_program_that_runs_for_long_is_run_no_more_than_twice(run_s: float, runs: int) -> None:
    result, spent_s = timed(run_s, cutoff_s=None)
    assert result == Timed((run_s,) * runs)
    assert spent_s == pytest.approx(runs * run_s)


def test_a_tiny_kernel_is_looked_at_closer_before_it_is_sampled() -> None:
    result, spent_s = timed(1e-6, cutoff_s=TIMING.cutoff_s(1e-6))
    assert len(result.samples_s) > TIMING.min_samples
    assert spent_s < 0.030
