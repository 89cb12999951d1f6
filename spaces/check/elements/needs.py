"""The elements of each tensor that chosen elements of a program's outputs are computed from.

They are kept as a set of indices for each axis: a grid, which may hold more than is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.check.elements.formulas import Array, Contents, value_of
from spaces.check.elements.stages import Axis, Stage, Unevaluable
from spaces.check.errors.expressions import dtype_of
from spaces.ir import rewrite, tvm_compat
from spaces.ir.element_types import numpy_dtype

Mask = npt.NDArray[np.bool_]
_MOST_INDICES = 1 << 22
"""Of an index of more values than this all of its axis counts as needed."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The elements that have to be computed.

    Attributes:
        tensors: for each tensor that is written, by its hash, whether each index is needed, by
            axis.
        domains: for each stage, the values of its axes at which it has to be run; None where it
            need not be run.
    """

    tensors: Mapping[int, tuple[Mask, ...]]
    domains: tuple[tuple[Array, ...] | None, ...]


def needs_of(
    stages: Sequence[Stage],
    wanted: Mapping[Any, Sequence[Array]],
    inputs: dict[int, Contents],
) -> Needs:
    """The elements that the program has to compute.

    Args:
        wanted: indices of each wanted tensor, by axis.
        inputs: contents of the tensors that the program does not write, by their hashes.

    Raises:
        Unevaluable: a tensor's shape is not known, or nothing writes a wanted one.
    """
    tensors = {hash(t): _masks(t) for stage in stages for t in stage.written}
    for tensor, places in wanted.items():
        if hash(tensor) not in tensors:
            raise Unevaluable("a tensor that nothing is written to")
        for mask, indices in zip(tensors[hash(tensor)], places, strict=True):
            mask[indices] = True
    domains: list[tuple[Array, ...] | None] = []
    for stage in reversed(stages):
        domain = _domain(stage, tensors)
        domains.append(domain)
        if domain is not None:
            for load in loads_of(stage):
                if hash(load.source) in tensors:
                    _note(stage, domain, load, tensors[hash(load.source)], inputs)
    return Needs(tensors, tuple(reversed(domains)))


def _masks(tensor: Any) -> tuple[Mask, ...]:
    extents = [tvm_compat.as_int(dim) for dim in tvm_compat.param_dims(tensor) or ()]
    if None in extents:
        raise Unevaluable("a tensor of unknown shape")
    return tuple(np.zeros(extent or 0, np.bool_) for extent in extents)


def _domain(stage: Stage, tensors: Mapping[int, tuple[Mask, ...]]) -> tuple[Array, ...] | None:
    """The values of a stage's axes at which it writes what is needed."""
    needed = [tensors[hash(tensor)] for tensor in stage.written]
    masks = [np.logical_or.reduce(each) for each in zip(*needed, strict=True)]
    domain = [_range(axis) for axis in stage.axes]
    for place, mask in zip(stage.places, masks, strict=True):
        if place.axis is None:
            if not mask[place.offset]:
                return None
            continue
        values = domain[place.axis]
        domain[place.axis] = values[mask[values * place.step + place.offset]]
    if not all(map(len, domain)):
        return None
    return tuple(domain)


def _range(axis: Axis) -> Array:
    return np.arange(axis.first, axis.first + axis.extent, dtype=numpy_dtype(dtype_of(axis.var)))


def loads_of(stage: Stage) -> list[Any]:
    """The loads of a stage, each once."""
    import tvm_ffi
    from tvm.ir import TensorLoad

    found: dict[tuple[int, int], Any] = {}

    def note(load: Any) -> None:
        key = hash(load.source), tvm_ffi.structural_hash(list(load.indices))
        found.setdefault(key, load)

    for statement in (*stage.init, *stage.body):
        tvm_ffi.structural_walk(statement.value, (TensorLoad, note))
    return [*found.values()]


def _note(
    stage: Stage,
    domain: Sequence[Array],
    load: Any,
    masks: Sequence[Mask],
    inputs: dict[int, Contents],
) -> None:
    """Note what a load needs."""
    for index, mask in zip(load.indices, masks, strict=True):
        values = _values(stage, domain, index, inputs)
        if values is None:
            mask[:] = True
        else:
            mask[values[(values >= 0) & (values < len(mask))]] = True


def _values(
    stage: Stage, domain: Sequence[Array], index: Any, inputs: dict[int, Contents]
) -> Array | None:
    """All values of an index; None where they are not known."""
    used = [rewrite.uses(index, [axis.var]) for axis in stage.axes]
    sizes = [len(values) for values, use in zip(domain, used, strict=True) if use]
    if math.prod(sizes) > _MOST_INDICES:
        return None
    spread = [
        values.reshape([-1 if k == n else 1 for k in range(len(domain))])
        for n, values in enumerate(domain)
    ]
    try:
        return np.asarray(value_of(stage, index, spread, inputs)).reshape(-1)
    except Unevaluable:
        return None
