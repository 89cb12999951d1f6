"""Named presets: the only place where defaults of budget and measurement live."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tuner import checks
from tuner.errors import UsageError
from tuner.record import Trial


@dataclass(frozen=True, slots=True)
class Timing:
    """The rules by which one kernel is timed.

    A sample is the mean of as many runs as fill `sample_s`; samples are taken until `total_s` is
    spent, at least `min_samples` and at most `max_samples` of them. Caches are warm: the kernel
    runs `warmup_runs` times first and nothing is flushed between samples.

    Where a time to beat is known, a kernel is cut off by its first run that takes longer than `cut`
    times that time. Its first `min_samples` samples are a probe: only a kernel whose probe is
    within `near` times that time gets the other samples. Where `cut` is None, all kernels get them.
    """

    warmup_runs: int = 1
    sample_s: float = 0.001
    total_s: float = 0.015
    min_samples: int = 3
    max_samples: int = 20
    cut: float | None = 4.0
    near: float = 1.1

    @property
    def long_s(self) -> float:
        """A run longer than this is a sample as it is, and two of them are enough."""
        return 5 * self.total_s

    @property
    def once_s(self) -> float:
        """A run longer than this is the only one."""
        return 10 * self.long_s

    def cutoff_s(self, best_s: float | None) -> float | None:
        """The time at which a kernel is cut off, given the time to beat; None for no cutoff."""
        return None if best_s is None or self.cut is None else self.cut * best_s

    def near_s(self, cutoff_s: float | None) -> float:
        """The slowest probe that still earns more samples; infinite without a cutoff."""
        if cutoff_s is None or self.cut is None:
            return float("inf")
        return self.near / self.cut * cutoff_s


@dataclass(frozen=True, slots=True)
class Effort:
    """The budget of a run where the user named none, and the way its kernels are timed.

    Attributes:
        trials_per_task: the total is this times the number of tasks.
        time_budget_s: wall time from when a trial can be measured.
        timing: of a kernel in the search.
        finalist_timing: of a finalist that is timed again.
        shape_timing: of a finalist that is timed again on each of several shapes.
        shape_rounds: rounds of re-timing for a task with several shapes, interleaved.
        finalists: most candidates of a task that are timed again, the default not counted; see
            `tuner.session.ending.halving`.
        finalist_share: at most this part of the time budget goes to finalists.
        gain_floor: a task whose remaining time is below this share of the model is left alone
            after its first few trials.
        build_deadline_s: of one build.
        run_deadline_s: of loading, checking and timing one kernel.
        reference_deadline_s: of the reference output of a task on one shape. The unscheduled
            program computes it, once on each machine.

    Raises:
        UsageError: a number is invalid, such as a budget below 0.
    """

    name: str
    trials_per_task: int
    time_budget_s: float
    timing: Timing = Timing()
    finalist_timing: Timing = Timing(sample_s=0.003, total_s=0.030, min_samples=5)
    shape_timing: Timing = Timing(sample_s=0.002, total_s=0.015, min_samples=3)
    shape_rounds: int = 2
    finalists: int = 16
    finalist_share: float = 0.1
    gain_floor: float = 0.002
    build_deadline_s: float = 60.0
    run_deadline_s: float = 30.0
    reference_deadline_s: float = 600.0

    def __post_init__(self) -> None:
        for name in ("trials_per_task", "shape_rounds"):
            self._check(name, checks.positive)
        self._check("finalists", checks.seed)
        deadlines = ("build_deadline_s", "run_deadline_s", "reference_deadline_s")
        for name in ("time_budget_s", *deadlines):
            self._check(name, checks.duration_s)
        for name in ("finalist_share", "gain_floor"):
            self._check(name, checks.share)

    def _check(self, name: str, check: Callable[[Any], object]) -> None:
        try:
            check(getattr(self, name))
        except UsageError as error:
            raise UsageError(f"effort {self.name}, {name}: {error}") from error

    @property
    def uncut(self) -> Effort:
        """The same effort, with every kernel of the search timed to its end."""
        return replace(self, timing=replace(self.timing, cut=None))

    def timing_of(self, trial: Trial) -> Timing:
        """The timing of a trial."""
        if trial.rung == 0:
            return self.timing
        return self.shape_timing if trial.instance else self.finalist_timing


EFFORTS = {
    "quick": Effort("quick", trials_per_task=64, time_budget_s=10 * 60),
    "normal": Effort("normal", trials_per_task=128, time_budget_s=60 * 60),
    "max": Effort("max", trials_per_task=1024, time_budget_s=12 * 60 * 60, finalists=32),
}
