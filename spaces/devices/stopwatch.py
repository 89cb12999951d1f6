"""The seam between the rules of timing and a kind of device, and the stopwatch of CPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tuner.record import NO_CONDITIONS, Conditions

Launch = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A kernel and the arguments that it is timed with.

    Attributes:
        module: a `tvm.runtime.Module` with the function "main".
        arguments: its tensors, on the device.
    """

    module: Any
    arguments: Sequence[Any]

    def function(self) -> Any:
        """The function "main" itself, so that a call need not look it up."""
        return self.module.get_function("main", query_imports=True)


NOTHING_LOADED = Loaded(None, ())


class Stopwatch(Protocol):
    """Times kernels on one device. `spaces.targets.backends` names one for each kind of target."""

    def run_once(self, loaded: Loaded) -> float:
        """Wall seconds of one run, launch included."""

    def wake(self, loaded: Loaded, runs: int) -> None:
        """Run a kernel until its device is at the speed at which kernels are timed, at least
        `runs` times."""

    def samples(self, loaded: Loaded, runs: int, count: int) -> tuple[float, ...]:
        """`count` samples, each the mean seconds of `runs` runs one after the other."""

    def conditions(self) -> Conditions:
        """What the device is like now, after samples were taken."""


class CpuStopwatch:
    """TVM's evaluator, which repeats calls in C++. Whether the machine is quiet is the business of
    the node's lock (`actors.quiet_lock`)."""

    def __init__(self, device: Any, _target: str) -> None:
        self._device = device

    def run_once(self, loaded: Loaded) -> float:
        """See `Stopwatch`."""
        return run_once(loaded, self._device.sync)

    def wake(self, loaded: Loaded, runs: int) -> None:
        """See `Stopwatch`."""
        kernel = loaded.function()
        for _ in range(runs):
            kernel(*loaded.arguments)

    def samples(self, loaded: Loaded, runs: int, count: int) -> tuple[float, ...]:
        """See `Stopwatch`. The evaluator runs the kernel once more before them."""
        evaluator = loaded.module.time_evaluator("main", self._device, number=runs, repeat=count)
        return tuple(float(s) for s in evaluator(*loaded.arguments).results)

    def conditions(self) -> Conditions:
        """See `Stopwatch`."""
        return NO_CONDITIONS


def run_once(loaded: Loaded, synchronize: Callable[[], None]) -> float:
    """Wall seconds of one run of a kernel on an idle device."""
    kernel = loaded.function()
    synchronize()
    start_s = time.perf_counter()
    kernel(*loaded.arguments)
    synchronize()
    return time.perf_counter() - start_s
