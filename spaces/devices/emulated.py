"""The emulated CUDA device's checker, and its stopwatch, whose times are a model's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.check.case import Draw
from spaces.devices.checker import how_wrong
from spaces.devices.launch_model import launch_s
from spaces.devices.stopwatch import Loaded
from spaces.emulation.buffers import Zoned
from spaces.emulation.library import launches_of, target_of
from tuner.record import NO_CONDITIONS, Conditions


class EmulatedStopwatch:
    """Implements `spaces.devices.stopwatch.Stopwatch`: a kernel runs once for each question, and
    its time is what `spaces.devices.launch_model` makes of what it did."""

    def __init__(self, device: Any, target: str) -> None:
        pass

    def run_once(self, loaded: Loaded) -> float:
        """See `Stopwatch`; seconds of the model."""
        launches_of(loaded.module)  # those from before
        loaded.function()(*loaded.arguments)
        target = target_of(loaded.module)
        return sum(launch_s(launch, target) for launch in launches_of(loaded.module))

    def wake(self, loaded: Loaded, runs: int) -> None:
        """See `Stopwatch`: a model is always awake."""

    def samples(self, loaded: Loaded, runs: int, count: int) -> tuple[float, ...]:
        """See `Stopwatch`: all samples are equal."""
        return (self.run_once(loaded),) * count

    def conditions(self) -> Conditions:
        """See `Stopwatch`."""
        return NO_CONDITIONS


class ZonedChecker:
    """Implements `spaces.devices.checker.Checker`: tensors lie between red zones."""

    def __init__(self, device: Any, target: str) -> None:
        self._zoned: list[Zoned] = []

    def feed(self, case: Draw) -> list[Any]:
        """See `Checker`."""
        arguments = case.arguments
        self._zoned = [Zoned(case.fresh(i), a.dtype) for i, a in enumerate(arguments)]
        return [zoned.tensor for zoned in self._zoned]

    def wrong(self, case: Draw, tensors: Sequence[Any]) -> str:
        """See `Checker`."""
        for argument, zoned in zip(case.arguments, self._zoned, strict=True):
            if damage := zoned.damage():
                return f"{argument.name}: {damage}"
        return how_wrong(case, tensors)
