"""The order of a comparison on a device: what tells most comes first, and the device does not idle
while kernels are built."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.gpu import beside, ours
from benchmarks.gpu.report import Report
from benchmarks.gpu.workloads import Workload

_TORCH_S, _TRITON_S, _SANITIZER_S, _BEST_S, _TESTS_S = 120.0, 60.0, 60.0, 60.0, 180.0
"""The most that one of these may take of the time there is."""
_LEAST_S = 5.0
"""Nothing is begun beside our kernels with less time left."""
_EMULATED = "left out: the device is emulated"
_NO_TIME = "left out: no time was left"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to compare, and how long.

    Attributes:
        samples: kernels of a generation, for each workload.
        until_s: when to end all but MetaSchedule, on the monotonic clock.
        whole: all workloads are compared; what is no workload is left out otherwise.
        long_trials: of MetaSchedule for each workload, 0 for none; `long_limit_s` are its most
            seconds.
    """

    target: str
    emulated: bool
    samples: int
    generations: int
    until_s: float
    whole: bool = True
    triton: bool = True
    sanitizer: bool = True
    tests: bool = True
    long_trials: int = 0
    long_limit_s: float = 600.0

    def left_s(self, most_s: float = math.inf) -> float:
        """Seconds that something may take."""
        return max(0.0, min(most_s, self.until_s - time.monotonic()))


@dataclass(frozen=True, slots=True)
class Step:
    """What is asked beside our kernels.

    Attributes:
        most_s: seconds that it may take.
        ask: its parameter `limit_s` says how many it gets.
    """

    name: str
    most_s: float
    asked: bool
    ask: Callable[..., None]

    def take(self, plan: Plan, report: Report) -> None:
        """Ask, in the time that is left."""
        limit_s = plan.left_s(self.most_s)
        if self.asked and limit_s >= _LEAST_S:
            self.ask(limit_s=limit_s)
        elif self.asked:
            report.miss(self.name, _NO_TIME)


def compare(chosen: Sequence[Workload], plan: Plan, folder: Path, report: Report) -> None:
    """Time both sides, and ask what else there is to ask, beside the builds of our kernels."""
    sides = [ours.Side(workload, plan.target) for workload in chosen]
    machine = report.known["machine"]["device"]

    def note(side: ours.Side) -> None:
        report.add(side.workload.name, device=machine, ours=side.to_json())

    rounds = [] if plan.emulated else steps_beside(sides, plan, folder, report)
    if plan.emulated:
        asked = ("torch", "sanitizer", "tests", *(["metaschedule"] if plan.long_trials else []))
        report.miss(", ".join(asked), _EMULATED)
    with ours.builders() as pool, ours.runner_of(plan.target, folder) as runner:
        for generation in range(plan.generations):
            begun = ours.start(pool, sides, plan.samples, generation)
            for step in rounds.pop(0) if rounds else ():
                step.take(plan, report)
            ours.measure(runner, begun, plan.until_s, note)
            print(f"generation {generation}, {plan.left_s():.0f} s left", flush=True)
        for side in sides:
            if side.workload.rows and plan.left_s():
                ours.time_rows(runner, side)
                note(side)
        for step in (step for steps in rounds for step in steps):
            step.take(plan, report)
        if plan.long_trials and not plan.emulated:
            from benchmarks.gpu import metaschedule  # it needs what the rest does not

            for side in sides:
                theirs = metaschedule.tune(
                    side, folder, pool, runner, trials=plan.long_trials, limit_s=plan.long_limit_s
                )
                report.add(side.workload.name, metaschedule=theirs)


def steps_beside(
    sides: Sequence[ours.Side], plan: Plan, folder: Path, report: Report
) -> list[list[Step]]:
    """What the device does while a generation is built: before any kernel, the vendor's libraries;
    after the first ones, whether they keep to their memory, Triton once, and the tests. The last
    are for the end."""
    chosen = [side.workload for side in sides]
    telling = next((w for w in chosen if w.dtype == "float16"), chosen[0])
    others = [w for w in chosen if w is not telling]
    torch = partial(beside.time_torch, report)
    sanitize = partial(beside.sanitize, report, sides, folder)
    tests, best = (partial(run, report) for run in (beside.run_tests, beside.time_best))
    whole, checked = plan.whole, plan.sanitizer
    return [
        [Step("torch", _TORCH_S, True, partial(torch, chosen, triton=False))],
        [
            Step("memcheck", _SANITIZER_S, checked, partial(sanitize, tool="memcheck")),
            Step("triton", _TRITON_S, plan.triton, partial(torch, [telling], triton=True)),
            Step("tests", _TESTS_S, plan.tests and whole, tests),
        ],
        [
            Step("best", _BEST_S, whole, best),
            Step("racecheck", _SANITIZER_S, checked, partial(sanitize, tool="racecheck")),
        ],
        [
            Step(
                "triton of all",
                math.inf,
                plan.triton and bool(others),
                partial(torch, others, triton=True),
            )
        ],
    ]
