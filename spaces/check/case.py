"""The inputs of one draw, and the outputs that are expected of a kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from spaces.check.compare import difference
from spaces.check.draws import Argument, Array
from spaces.ir.element_types import is_float, numpy_dtype


class Draw(Protocol):
    """The inputs of one draw, and what is known of the outputs.

    Attributes:
        arguments: arguments of the program, in order.
    """

    @property
    def arguments(self) -> tuple[Argument, ...]: ...

    @property
    def size_bytes(self) -> int:
        """Memory of all arrays."""

    @property
    def whole(self) -> Case | None:
        """All elements of the outputs, where they are known."""

    def fresh(self, position: int) -> Array:
        """Contents for an argument before a run."""

    def wrong(self, position: int, got: Array) -> str | None:
        """The error of the output at a position, in one line; None if none is found."""


@dataclass(frozen=True, slots=True)
class Case:
    """Implements `Draw`: the inputs and the expected outputs of one draw.

    Attributes:
        arguments: arguments of the program, in order.
        initial: contents of each argument before the run; None is garbage.
        outputs: contents of the written arguments after the run, by position.
        bounds: the most that each element of these may differ by; None where it must be equal.
    """

    arguments: tuple[Argument, ...]
    initial: tuple[Array | None, ...]
    outputs: dict[int, Array]
    bounds: dict[int, Array | None]

    @property
    def size_bytes(self) -> int:
        """Memory of all arrays."""
        known = (*self.initial, *self.outputs.values(), *self.bounds.values())
        return sum(a.nbytes for a in known if a is not None)

    @property
    def whole(self) -> Case:
        """See `Draw`."""
        return self

    def fresh(self, position: int) -> Array:
        """Contents for an argument before a run."""
        known = self.initial[position]
        return garbage(self.arguments[position]) if known is None else known

    def wrong(self, position: int, got: Array) -> str | None:
        """The error of the output at a position, in one line; None if the output is right."""
        return difference(got, self.outputs[position], self.bounds[position])


def garbage(argument: Argument) -> Array:
    """Contents that no program computes: NaN, or a bit pattern for integers."""
    dtype = numpy_dtype(argument.dtype)
    if is_float(argument.dtype):
        return np.full(argument.shape, math.nan, dtype)
    if dtype == np.bool_:
        return np.ones(argument.shape, dtype)
    raw = np.full(math.prod(argument.shape) * dtype.itemsize, 0x5A, np.uint8)
    return raw.view(dtype).reshape(argument.shape)
