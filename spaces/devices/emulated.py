"""The emulated CUDA device's stopwatch and checker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.check.reference import Case
from spaces.devices.checker import how_wrong
from spaces.emulation.buffers import Zoned


class ZonedChecker:
    """Implements `spaces.devices.checker.Checker`: tensors lie between red zones."""

    def __init__(self, device: Any, target: str) -> None:
        self._zoned: list[Zoned] = []

    def feed(self, case: Case) -> list[Any]:
        """See `Checker`."""
        arguments = case.arguments
        self._zoned = [Zoned(case.fresh(i), a.dtype) for i, a in enumerate(arguments)]
        return [zoned.tensor for zoned in self._zoned]

    def wrong(self, case: Case, tensors: Sequence[Any]) -> str:
        """See `Checker`."""
        for argument, zoned in zip(case.arguments, self._zoned, strict=True):
            if damage := zoned.damage():
                return f"{argument.name}: {damage}"
        return how_wrong(case, tensors)
