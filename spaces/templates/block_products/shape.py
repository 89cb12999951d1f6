"""A product of bytes in blocks as plain data, and where it is in a program.

Of `spaces.lowering.weights.byte_rows`: codes are unpacked, products of a block are summed in int32,
and sums of blocks in float32, each by a scale of its row and one of its column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from spaces.intrinsics.vnni import GROUP
from spaces.ir import rewrite, tvm_compat
from spaces.ir.guard import Unsuitable, refusals
from spaces.ir.schedules import new_schedule, task_module
from spaces.ir.symbolic import NO_VALUES, value_of
from spaces.templates.contraction.match import sums
from tuner.task import Instance, Task

_TYPES = ["int8", "uint8"]
"""Of rows, and of codes."""


@dataclass(frozen=True, slots=True)
class BlockProduct:
    """The sizes of a product.

    Attributes:
        tiles: tiles of rows, over all outer dimensions; of an open number, for one shape.
        rows: of a tile; `columns` are padded, and the weight has `packed_columns`.
        blocks: of a sum, each of `block` terms.
        packed_bits: bits of the weight in memory for each number of it.
        symbolic: whether the number of tiles is known only when the program runs.
        outer: how many dimensions there are before rows and columns.
        index_bits: bits of the program's loop variables.
    """

    tiles: int
    rows: int
    columns: int
    packed_columns: int
    blocks: int
    block: int
    packed_bits: float
    symbolic: bool
    outer: int
    index_bits: int


@dataclass(frozen=True, slots=True)
class Stages:
    """Blocks of its schedule.

    Attributes:
        codes: makes codes of packed ones; `dots` sums in a block; `product` over blocks.
        before: make numbers for each column and block of a constant, scales and zero points.
    """

    codes: Any
    dots: Any
    product: Any
    before: tuple[Any, ...]


def find_stages(schedule: Any) -> Stages:
    """The stages of a program that is such a product.

    Raises:
        Unsuitable: it is none.
    """
    blocks = tvm_compat.stage_blocks(schedule)
    summing = [b for b in blocks if sums(schedule.get(b))]
    if len(summing) != 2:
        raise Unsuitable("it does not sum twice")
    dots, product = summing
    made = schedule.get_producers(dots)
    before = [b for b in schedule.get_producers(product) if not _same(schedule, b, dots)]
    if len(made) != 1 or len(blocks) != 3 + len(before) or schedule.get_consumers(product):
        raise Unsuitable("it has stages that are none of such a product")
    return Stages(made[0], dots, product, tuple(before))


def _same(schedule: Any, block: Any, other: Any) -> bool:
    return bool(schedule.get(block).same_as(schedule.get(other)))


def find_block_product(task: Task) -> tuple[BlockProduct, Any] | None:
    """The product that a task is, for its largest shape, and the function of its program; None
    where it is none."""
    with refusals(f"the product of {task.name} in blocks"):
        module = task_module(task.module)
        if sum(map(sums, tvm_compat.sblocks(module["main"]))) != 2:
            return None
        schedule = new_schedule(module)
        stages = find_stages(schedule)
        sizes = [dict(instance) for instance, _ in task.shapes]
        largest = max(sizes, key=lambda values: prod(values.values()), default=NO_VALUES)
        return _read(schedule, stages, largest), module["main"]
    return None


def _read(schedule: Any, stages: Stages, values: Mapping[str, int]) -> BlockProduct:
    dots, product = schedule.get(stages.dots), schedule.get(stages.product)
    loads = _find_factors(dots)
    if [str(load.source.dtype) for load in loads] != _TYPES:
        raise Unsuitable("it multiplies no signed bytes by unsigned ones")
    *outer, rows, columns = (v.dom.extent for v in product.iter_vars[:-1])
    sizes = [value_of(extent, values) for extent in (*outer, rows, columns)]
    blocks = tvm_compat.as_int(product.iter_vars[-1].dom.extent)
    block = tvm_compat.as_int(dots.iter_vars[-1].dom.extent)
    known = [tvm_compat.as_int(size) for size in (rows, columns)]
    if None in (*sizes, *known, blocks, block) or (block or 0) % (2 * GROUP):
        raise Unsuitable("its sizes are not known, or its blocks are of no groups")
    _check_loads(dots, loads, len(outer))
    return BlockProduct(
        tiles=prod(size or 0 for size in sizes[:-2]),
        rows=sizes[-2] or 0,
        columns=sizes[-1] or 0,
        packed_columns=int(schedule.get(stages.codes).reads[0].source.shape[0]),
        blocks=blocks or 0,
        block=block or 0,
        packed_bits=_count_bits(schedule.get(stages.codes)),
        symbolic=any(tvm_compat.as_int(extent) is None for extent in outer),
        outer=len(outer),
        index_bits=64 if str(dots.iter_vars[0].var.ty.dtype) == "int64" else 32,
    )


def _find_factors(block: Any) -> list[Any]:
    product = rewrite.find_product(block.body)
    if product is None:
        raise Unsuitable("it sums no products")
    return [rewrite.uncast(factor) for factor in (product.a, product.b)]


def _check_loads(block: Any, loads: Sequence[Any], outer: int) -> None:
    """Check that rows are read as (outer, row, place) and codes as (column, place)."""
    number, *front, row, column, _ = (axis.var for axis in block.iter_vars)
    rows, codes = ([*load.indices] for load in loads)
    wanted = [*front, row]
    if len(front) != outer or len(rows) != outer + 2 or len(codes) != 2:
        raise Unsuitable("its factors have other dimensions")
    plain = all(a.same_as(b) for a, b in zip(rows[:-1], wanted, strict=True))
    if not plain or not codes[0].same_as(column) or not rewrite.uses(codes[1], [number]):
        raise Unsuitable("its factors are read in another order")


def _count_bits(codes: Any) -> float:
    (source,) = (region.source for region in codes.reads)
    sizes = [tvm_compat.param_shape(t) or [] for t in (codes.writes[0].source, source)]
    number, stored = (prod(int(size) for size in shape) for shape in sizes)
    return 8 * stored / number


def count_tiles(function: Any, instance: Instance, outer: int) -> int:
    """The tiles of rows that a program has for a shape.

    Args:
        outer: how many dimensions the result has before rows and columns.
    """
    dims = tvm_compat.param_dims(function.params[-1]) or []
    return prod(value_of(size, dict(instance)) or 0 for size in dims[:outer])
