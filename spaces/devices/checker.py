"""The seam between the check of outputs and a kind of device, and the check in host memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from spaces.check.case import Draw

Array = npt.NDArray[Any]


class Checker(Protocol):
    """Feeds kernels on one device, and checks what they wrote.

    `spaces.targets.backends` names one for each kind of target.
    """

    def feed(self, case: Draw) -> list[Any]:
        """The arguments of a program before a run, as tensors on the device."""

    def wrong(self, case: Draw, tensors: Sequence[Any]) -> str:
        """The error in the arguments that a kernel has written; empty if they are right."""


class HostChecker:
    """Implements `Checker` for a CPU: new tensors for each run, compared by numpy."""

    def __init__(self, device: Any, target: str) -> None:
        self._device = device

    def feed(self, case: Draw) -> list[Any]:
        """See `Checker`."""
        return [to_device(case.fresh(i), self._device) for i in range(len(case.arguments))]

    def wrong(self, case: Draw, tensors: Sequence[Any]) -> str:
        """See `Checker`."""
        return how_wrong(case, tensors)


def to_device(array: Array, device: Any) -> Any:
    """A tensor with the contents of an array."""
    import tvm

    return tvm.runtime.tensor(array, device)


def how_wrong(case: Draw, tensors: Sequence[Any]) -> str:
    """The error in the arguments that a kernel has written; empty if they are right."""
    for i, arg in enumerate(case.arguments):
        got = tensors[i].numpy()
        if not arg.written:
            if not np.array_equal(raw(got), raw(case.fresh(i))):
                return f"it overwrote its input {arg.name}"
        elif (error := case.wrong(i, got)) is not None:
            return f"output {arg.name}: {error}"
    return ""


def raw(array: Array) -> Array:
    """The contents as integers, which compare in a tenth of the time, also where NaN."""
    return array.view(f"u{array.dtype.itemsize}")
