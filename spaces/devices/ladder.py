"""The rules by which one kernel is timed: each step costs more, and fewer kernels take it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spaces.devices.stopwatch import Loaded, Stopwatch
from tuner.effort import Timing
from tuner.record import NO_CONDITIONS, Conditions

_MOST_RUNS = 1_000_000
_SINGLY = 4
"""A run as long as this many samples is timed by itself. The call, some microseconds, hardly counts
then, and the evaluator would run the kernel once more for each group of samples."""
_HOPELESS = 2.0
_HOPELESS_FLOOR_S = 0.020
"""A first run of more than this many cutoffs, and this long, is enough to cut a kernel off: warming
up, the launch, and a few time slices lost to a stranger do not explain it."""


@dataclass(frozen=True, slots=True)
class Timed:
    """The samples, in seconds for one run; a single one if the kernel was cut off. And what the
    device was like."""

    samples_s: tuple[float, ...]
    censored: bool = False
    conditions: Conditions = NO_CONDITIONS


def time_kernel(watch: Stopwatch, loaded: Loaded, timing: Timing, cutoff_s: float | None) -> Timed:
    """Time a kernel on a device on which nothing else should run meanwhile.

    Args:
        cutoff_s: a kernel slower than this is cut off; None cuts nothing off.
    """
    first_s = watch.run_once(loaded)
    if cutoff_s is not None and first_s > max(_HOPELESS * cutoff_s, _HOPELESS_FLOOR_S):
        return Timed((first_s,), censored=True)
    if first_s > timing.long_s:  # such as an unscheduled program, which holds up all others
        again = () if first_s > timing.once_s else (watch.run_once(loaded),)
        return Timed((first_s, *again))
    if first_s > _SINGLY * timing.sample_s:
        return _time_singly(watch, loaded, timing, cutoff_s, first_s)
    estimate_s = _estimate(watch, loaded, timing)
    if not (math.isfinite(estimate_s) and estimate_s > 0):
        return Timed((estimate_s,))
    if cutoff_s is not None and estimate_s > cutoff_s:
        # A stranger may have slowed one run down, but a candidate is cut off for good.
        estimate_s = min(first_s, estimate_s, watch.run_once(loaded))
        if estimate_s > cutoff_s:
            return Timed((estimate_s,), censored=True)
    return _sample(watch, loaded, timing, cutoff_s, estimate_s)


def _estimate(watch: Stopwatch, loaded: Loaded, timing: Timing) -> float:
    """The time of a run, from one run, or from several of a kernel that is mostly overhead."""
    watch.wake(loaded, timing.warmup_runs - 2)  # it ran once, and samples begin with a run
    (estimate_s,) = watch.samples(loaded, 1, 1)
    if estimate_s < timing.sample_s / 50:
        (estimate_s,) = watch.samples(loaded, _runs(timing.sample_s / 10, estimate_s), 1)
    return estimate_s


def _sample(
    watch: Stopwatch, loaded: Loaded, timing: Timing, cutoff_s: float | None, estimate_s: float
) -> Timed:
    runs = _runs(timing.sample_s, estimate_s)

    def more(count: int) -> tuple[float, ...]:
        return watch.samples(loaded, runs, count) if count > 0 else ()

    # The estimate was one warm run, which is what a sample of a slow kernel is.
    samples: tuple[float, ...] = (estimate_s,) if runs == 1 else ()
    samples += more(timing.min_samples - len(samples))
    if min(samples) > timing.near_s(cutoff_s):
        return Timed(samples)
    wanted = min(max(int(timing.total_s / (runs * estimate_s)), 1), timing.max_samples)
    return Timed(samples + more(wanted - len(samples)))


def _time_singly(
    watch: Stopwatch, loaded: Loaded, timing: Timing, cutoff_s: float | None, first_s: float
) -> Timed:
    """Take samples of one run each. The run before them was the warm-up; it counts as a sample
    where it is so long that cold caches make no difference."""
    again_s = watch.run_once(loaded)
    if cutoff_s is not None and min(first_s, again_s) > cutoff_s:
        return Timed((min(first_s, again_s),), censored=True)
    samples = (first_s, again_s) if first_s > timing.total_s else (again_s,)
    count = timing.min_samples
    if cutoff_s is None or again_s <= timing.near_s(cutoff_s):
        count = max(count, min(int(timing.total_s / again_s), timing.max_samples))
    more = (watch.run_once(loaded) for _ in range(count - len(samples)))
    return Timed((*samples, *more))


def _runs(span_s: float, run_s: float) -> int:
    """The number of runs that fill a span."""
    if not (math.isfinite(run_s) and run_s > 0):
        return 1
    return max(1, min(_MOST_RUNS, math.ceil(span_s / run_s)))
