"""A memory-bound program with symbolic dimensions, as it is in each of its shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.symbolic import is_symbolic, value_of
from spaces.templates.memory.cost import Form
from spaces.templates.memory.stages import Stage
from tuner.task import Instance, Shapes

_LEAST = 67
"""The least size at which a dimension fills vectors and is too long to unroll."""


def stand_in(shapes: Shapes) -> dict[str, int]:
    """Sizes of the symbolic dimensions for which the structure of a schedule is decided.

    They are distinct primes, so that nothing divides by chance; and large, since a short axis
    would be scheduled otherwise than a long one.
    """
    found: dict[str, int] = {}
    for name, _ in shapes[0][0] if shapes else ():
        value = max(_LEAST, *(dict(instance)[name] for instance, _ in shapes))
        while not _is_prime(value) or value in found.values():
            value += 1
        found[name] = value
    return found


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def forms_of(
    form: Form, blocks: Sequence[Any], buffers: Sequence[Any], instances: Sequence[Instance]
) -> dict[Instance, Form]:
    """A program in each of some shapes: the same stages and nests, with other extents.

    Args:
        blocks: TVM's blocks, one for each stage.
        buffers: TVM's buffers, in the order of the numbers in `Access.buffer`.
    """
    sizes = Sizes()
    extents = [[sizes.of(axis.dom.extent) for axis in block.iter_vars] for block in blocks]
    shapes = [[sizes.of(dim) for dim in buffer.shape] for buffer in buffers]
    found = {}
    for instance in instances:
        known = sizes.values(dict(instance))
        elements = [math.prod(known[d] for d in shape) for shape in shapes]
        stages = (
            _resize(stage, [known[n] for n in wanted], elements)
            for stage, wanted in zip(form.stages, extents, strict=True)
        )
        found[instance] = replace(form, stages=tuple(stages))
    return found


class Sizes:
    """Distinct dimensions of a program, by number; there are few."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._dims: list[Any] = []

    def of(self, dim: Any) -> int:
        """The number of a dimension."""
        key = dim if is_symbolic(dim) else tvm_compat.as_int(dim)
        if key not in self._numbers:
            self._numbers[key] = len(self._dims)
            self._dims.append(dim)
        return self._numbers[key]

    def values(self, instance: Mapping[str, int]) -> list[int]:
        """The sizes of all dimensions in one shape."""
        return [value_of(dim, instance) or 0 for dim in self._dims]


def _resize(stage: Stage, extents: Sequence[int], elements: Sequence[int]) -> Stage:
    axes = (replace(a, extent=n) for a, n in zip(stage.axes, extents, strict=True))
    return replace(
        stage,
        axes=tuple(axes),
        writes=tuple(replace(a, elements=elements[a.buffer]) for a in stage.writes),
        reads=tuple(replace(a, elements=elements[a.buffer]) for a in stage.reads),
    )
