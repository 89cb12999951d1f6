"""A contraction brought into the form of a matrix product before it is scheduled.

Axes that one operand alone depends on become one axis, groups of channels an axis of their own,
and each operand a tensor indexed by the axes of the product alone: for a convolution the matrix
whose rows are the windows ("im2col"). Then every extent can be padded, so no size is too odd; the
price is that operands are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.affine import quotient_of, read_index
from spaces.templates.contraction.match import (
    Match,
    Stages,
    ancestors,
    factors,
    keeps_shape,
    producer_of,
)


@dataclass(frozen=True, slots=True)
class ProductForm:
    """The mapping of a block's axes to those of a matrix product.

    Attributes:
        parts: for each new axis the old axes fused into it, outer to inner.
        divisors: for each new axis None, or, where it is a piece of an old one, the size of a
            group and whether the new axis is the number of the group.
    """

    parts: tuple[tuple[int, ...], ...]
    divisors: tuple[tuple[int, bool] | None, ...]


def product_of(match: Match) -> Match | None:
    """A contraction in the form of a product; None where it has that form, or cannot have it."""
    schedule = match.schedule.copy()
    stages = as_product(schedule, match.stages)
    return (
        None if stages is None else replace(match, schedule=schedule, stages=stages, product=True)
    )


def as_product(schedule: Any, stages: Stages) -> Stages | None:
    """Bring a tidied program into the form of a product; None where it has it or cannot have it."""
    block = schedule.get(stages.main)
    form = _form_of(block)
    if form is None or not keeps_shape(schedule, stages):
        return None
    extents = [int(tvm_compat.as_int(v.dom.extent) or 0) for v in block.iter_vars]
    spatial = _spatial_dims(block)
    dtype = str(block.iter_vars[0].var.ty.dtype)
    last = stages.last
    if last is not None:
        # In this order TVM sees that elements are read where they were written.
        result = _of_result(form, spatial)
        shape = [extents[axis] for axis in sorted(spatial, key=lambda a: spatial[a])]
        index_map = _index_map(result, shape, dtype)
        schedule.transform_block_layout(last, index_map)
        schedule.transform_layout(stages.main, ("write", 0), index_map)
    schedule.transform_block_layout(stages.main, _index_map(form, extents, dtype))
    for operand in range(2):
        if not _is_plain(schedule.get(stages.main), operand):
            _gather(schedule, stages.main, operand)
    schedule.reindex(stages.main, ("write", 0))
    written = schedule.get_consumers(stages.main)[0]
    if last is None:
        last = written
    else:
        schedule.compute_inline(written)
    before = [producer_of(schedule, stages.main, operand) for operand in range(2)]
    return Stages(stages.main, (before[0], before[1]), last)


def _gather(schedule: Any, main: Any, operand: int) -> None:
    """Copy an operand in the order in which the product reads it."""
    schedule.reindex(main, ("read", operand))
    copy = producer_of(schedule, main, operand)
    for earlier in ancestors(schedule, copy):
        schedule.compute_inline(earlier)


def _is_plain(block: Any, operand: int) -> bool:
    loads = factors(block)
    return loads is not None and all(type(e).__name__ == "Var" for e in loads[operand].indices)


def _spatial_dims(block: Any) -> dict[int, int]:
    """For each spatial axis the dimension of the result that it indexes."""
    numbers = {v.var: n for n, v in enumerate(block.iter_vars)}
    found: dict[int, int] = {}
    for dim, expression in enumerate(block.body.indices):
        if type(expression).__name__ == "Var":
            found[numbers[expression]] = dim
    return found


def _form_of(block: Any) -> ProductForm | None:
    """The product form of a block; None where it has that form already, or cannot have it."""
    loads = factors(block)
    extents = [int(tvm_compat.as_int(v.dom.extent) or 0) for v in block.iter_vars]
    spatial = [n for n, v in enumerate(block.iter_vars) if int(v.iter_type) == tvm_compat.SPATIAL]
    if loads is None or 0 in extents:
        return None
    if prod(extents) == prod(extents[n] for n in spatial):
        return None  # TVM does not take loops of one step for reductions
    dims = _spatial_dims(block)
    if sorted(dims) != spatial or len(block.body.indices) != len(spatial):
        return None
    numbers = {v.var: n for n, v in enumerate(block.iter_vars)}
    groups = {n: _group(loads, numbers, n, extents[n]) for n in spatial}
    if any(size is not None and extents[n] % size for n, size in groups.items()):
        return None
    fixed = frozenset(n for n, extent in enumerate(extents) if extent == 1)
    used = [_used(load, numbers, fixed) for load in loads]
    form = _parts(len(extents), _runs(spatial, dims, used, groups), groups)
    plain = all(_is_plain(block, operand) for operand in (0, 1))
    return None if plain and len(form.parts) == len(extents) else form


def _group(loads: Any, numbers: dict[Any, int], axis: int, extent: int) -> int | None:
    """The size of the groups that an axis consists of; None where it has no groups."""
    sizes = (quotient_of(load.indices, numbers, axis) for load in loads)
    return next((size for size in sizes if size is not None and 1 < size < extent), None)


def _parts(
    count: int, runs: Sequence[tuple[int, ...]], groups: dict[int, int | None]
) -> ProductForm:
    parts: list[tuple[int, ...]] = []
    divisors: list[tuple[int, bool] | None] = []
    for axis in range(count):
        run = next((r for r in runs if axis in r), (axis,))
        size = groups.get(axis)
        if size is not None:
            parts += [(axis,), (axis,)]
            divisors += [(size, True), (size, False)]
        elif run[0] == axis:
            parts.append(run)
            divisors.append(None)
    return ProductForm(tuple(parts), tuple(divisors))


def _used(load: Any, numbers: dict[Any, int], fixed: frozenset[int]) -> frozenset[int]:
    found: set[int] = set()
    for expression in load.indices:
        found |= read_index(expression, numbers, fixed).uses
    return frozenset(found)


def _runs(
    spatial: Sequence[int],
    dims: dict[int, int],
    used: Sequence[frozenset[int]],
    groups: dict[int, int | None],
) -> list[tuple[int, ...]]:
    """Runs of neighbouring axes that the same one operand depends on; each run is fused."""
    order = sorted(spatial, key=lambda a: dims[a])
    kind = {a: (a in used[0], a in used[1]) for a in order}
    runs: list[list[int]] = [[a] for a in order[:1]]
    for before, after in pairwise(order):
        alike = kind[before] == kind[after] and sum(kind[after]) == 1
        if alike and after == before + 1 and not groups[before] and not groups[after]:
            runs[-1].append(after)
        else:
            runs.append([after])
    return [tuple(run) for run in runs if len(run) > 1]


def _of_result(form: ProductForm, dims: dict[int, int]) -> ProductForm:
    """The part of the mapping that concerns the result, in terms of its dimensions."""
    kept = [i for i, part in enumerate(form.parts) if part[0] in dims]
    kept.sort(key=lambda i: (dims[form.parts[i][0]], form.divisors[i] == _rest(form.divisors[i])))
    return ProductForm(
        tuple(tuple(dims[a] for a in form.parts[i]) for i in kept),
        tuple(form.divisors[i] for i in kept),
    )


def _rest(divisor: tuple[int, bool] | None) -> tuple[int, bool] | None:
    return None if divisor is None else (divisor[0], False)


def _index_map(form: ProductForm, extents: Sequence[int], dtype: str) -> Any:
    from tvm import tirx
    from tvm.tirx import IndexMap

    def place(*index: Any) -> list[Any]:
        found = []
        for part, divisor in zip(form.parts, form.divisors, strict=True):
            flat = index[part[0]]
            for axis in part[1:]:
                flat = flat * extents[axis] + index[axis]
            if divisor is not None:
                size, outer = divisor
                flat = tirx.floordiv(flat, size) if outer else tirx.floormod(flat, size)
            found.append(flat)
        return found

    return IndexMap.from_func(place, ndim=len(extents), index_dtype=dtype)
