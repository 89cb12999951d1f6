"""Chosen elements of what a program computes, without computing the others.

An unscheduled program is carried out block by block, each at the indices that are needed of what
it writes (`spaces.check.elements.needs`), on NumPy's arrays, in the program's own types and with
its sums in their order. What a program does beyond that is refused (`Unevaluable`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spaces.check.elements.formulas import Array, Contents, Formula, formula_of
from spaces.check.elements.needs import loads_of, needs_of
from spaces.check.elements.stages import Stage, Unevaluable, stages_of
from spaces.check.stored import Places
from spaces.ir import rewrite, tvm_compat
from spaces.ir.element_types import numpy_dtype

_OPERATION_S, _ELEMENT_S = 1.5e-6, 1.5e-9
"""The time of an operation on an array, and of each element in it."""
_MOST_ELEMENTS = 1 << 26
"""Elements of one tensor that may be computed."""


class Evaluation:
    """A program that can be computed at chosen elements.

    Args:
        function: an unscheduled PrimFunc.

    Raises:
        Unevaluable: it is not made of blocks that each write an element at a simple place.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._stages = stages_of(function)

    def at(
        self, inputs: Mapping[int, Array], wanted: Mapping[int, Places], most_s: float = math.inf
    ) -> dict[int, Array]:
        """Elements of outputs.

        Args:
            inputs: contents of the parameters that are read, by position.
            wanted: of the outputs, by position.
            most_s: the time that it may be expected to take.

        Raises:
            Unevaluable: an operation is not known, what is computed depends on an output's old
                contents, or it would take longer.
        """
        params = self._function.params
        known = {hash(params[i]): Contents(array) for i, array in inputs.items()}
        needs = needs_of(self._stages, {params[i]: at for i, at in wanted.items()}, known)
        run = _Run(known, needs.tensors, most_s)
        with np.errstate(all="ignore"):
            for stage, domain in zip(self._stages, needs.domains, strict=True):
                if domain is not None:
                    run.carry_out(stage, domain)
        return {i: run.contents_of(params[i], places) for i, places in wanted.items()}


@dataclass(frozen=True, slots=True)
class _Made:
    """The elements of a tensor that a program writes.

    Attributes:
        contents: they; what is not yet written is 0.
        filled: whether each has been written.
    """

    contents: Contents
    filled: Array


class _Run:
    """Carries stages out and keeps what they write."""

    def __init__(
        self, known: dict[int, Contents], needed: Mapping[int, Sequence[Array]], most_s: float
    ) -> None:
        self._known, self._needed, self._left_s = known, needed, most_s
        self._made: dict[int, _Made] = {}

    def contents_of(self, tensor: Any, places: Places) -> Array:
        """Elements that have been computed."""
        self._check_filled(tensor)
        return np.asarray(self._known[hash(tensor)].read(*np.ix_(*places)))

    def carry_out(self, stage: Stage, domain: Sequence[Array]) -> None:
        """Compute what a stage writes at the values of its axes."""
        for load in loads_of(stage):
            if not rewrite.is_among(load.source, stage.written):
                self._check_filled(load.source)
        axes = [
            values.reshape([-1 if k == n else 1 for k in range(len(domain))])
            for n, values in enumerate(domain)
        ]
        shape = [1 if a.reduced else len(d) for a, d in zip(stage.axes, domain, strict=True)]
        start = formula_of(stage, stage.init, self._known)
        body = formula_of(stage, stage.body, self._known)
        size = math.prod(shape)
        self._spend(body, math.prod(map(len, domain)) // size, size)
        if body.reads_before and not stage.init:
            for tensor in stage.written:
                self._check_filled(tensor)
        state = [self._read(stage, tensor, axes).reshape(shape) for tensor in stage.written]
        if stage.init:
            state = start.run(axes, iter([_first(stage, domain)]), state)
        state = body.run(axes, _steps(stage, domain), state)
        for tensor, values in zip(stage.written, state, strict=True):
            self._write(stage, tensor, axes, np.broadcast_to(values, shape))

    def _spend(self, formula: Formula, steps: int, elements: int) -> None:
        self._left_s -= steps * formula.varying * (_OPERATION_S + elements * _ELEMENT_S)
        self._left_s -= formula.size * elements * _ELEMENT_S
        if self._left_s < 0:
            raise Unevaluable("it would take long")

    def _check_filled(self, tensor: Any) -> None:
        made = self._made.get(hash(tensor))
        if made is None and hash(tensor) in self._needed:
            raise Unevaluable("a tensor that is read before it is written")
        if made is not None and not made.filled.all():
            raise Unevaluable("a tensor of which a part is not written")

    def _read(self, stage: Stage, tensor: Any, axes: Sequence[Array]) -> Array:
        made = self._made.get(hash(tensor)) or self._make(tensor)
        return np.asarray(made.contents.read(*_indices(stage, axes)))

    def _write(self, stage: Stage, tensor: Any, axes: Sequence[Array], values: Array) -> None:
        made, indices = self._made[hash(tensor)], _indices(stage, axes)
        assert made.contents.rows is not None
        rows = tuple(row[i] for row, i in zip(made.contents.rows, indices, strict=True))
        made.contents.array[rows] = values.reshape(made.filled[rows].shape)
        made.filled[rows] = True

    def _make(self, tensor: Any) -> _Made:
        masks = self._needed[hash(tensor)]
        shape = [int(mask.sum()) for mask in masks]
        if math.prod(shape) > _MOST_ELEMENTS:
            raise Unevaluable("many elements of a tensor on the way")
        array = np.zeros(shape, numpy_dtype(tvm_compat.param_dtype(tensor)))
        contents = Contents(array, tuple(np.cumsum(mask) - 1 for mask in masks))
        made = self._made[hash(tensor)] = _Made(contents, np.zeros(shape, np.bool_))
        self._known[hash(tensor)] = contents
        return made


def _indices(stage: Stage, axes: Sequence[Array]) -> tuple[Any, ...]:
    """The indices that a stage writes at."""
    return tuple(
        np.asarray(p.offset) if p.axis is None else axes[p.axis] * p.step + p.offset
        for p in stage.places
    )


def _first(stage: Stage, domain: Sequence[Array]) -> tuple[tuple[int, Any], ...]:
    return tuple((n, domain[n][0]) for n, axis in enumerate(stage.axes) if axis.reduced)


def _steps(stage: Stage, domain: Sequence[Array]) -> Iterator[tuple[tuple[int, Any], ...]]:
    """The values of a stage's reductions, one step after another, each with its axis."""
    reduced = [n for n, axis in enumerate(stage.axes) if axis.reduced]
    for values in itertools.product(*(domain[n] for n in reduced)):
        yield tuple(zip(reduced, values, strict=True))
