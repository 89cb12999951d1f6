"""A product of bytes in blocks as plain data, and where it is in a program.

Of `spaces.lowering.weights.byte_rows`: codes are unpacked, products of a block are summed in int32,
and sums of blocks in float32, each by a scale of its row and one of its column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.ir.guard import Unsuitable, refusals
from spaces.ir.schedules import new_schedule, task_module
from spaces.ir.symbolic import NO_VALUES, value_of
from spaces.targets.cpu import GROUP
from spaces.templates.contraction.match import inline_epilogue, sums
from tuner.task import Instance, Task

_TYPES = ["int8", "uint8"]
"""Of rows, and of codes."""


@dataclass(frozen=True, slots=True)
class BlockProduct:
    """The sizes of a product.

    Attributes:
        batches: matrices of rows, over all outer dimensions; of an open number, for one shape.
        rows: of a matrix, of which each `height` are a tile; of an open number, for one shape.
        columns: padded ones; the weight has `packed_columns`.
        blocks: of a sum, each of `block` terms.
        packed_bits: bits of the weight in memory for each number of it.
        symbolic: whether the number of rows is known only when the program runs.
        outer: how many dimensions there are before a tile's rows and columns.
    """

    batches: int
    rows: int
    height: int
    columns: int
    packed_columns: int
    blocks: int
    block: int
    packed_bits: float
    symbolic: bool
    outer: int


@dataclass(frozen=True, slots=True)
class Stages:
    """Blocks of its schedule.

    Attributes:
        codes: makes codes of packed ones; `dots` sums in a block; `product` over blocks; `last`
            writes what follows from the product's rows, without those that pad a tile.
        before: make numbers for each column and block of a constant, scales and zero points.
    """

    codes: Any
    dots: Any
    product: Any
    last: Any
    before: tuple[Any, ...]


def find_stages(schedule: Any) -> Stages:
    """The stages of a program that is such a product, what follows it in one.

    Raises:
        Unsuitable: it is none.
    """
    summing = [b for b in tvm_compat.stage_blocks(schedule) if sums(schedule.get(b))]
    if len(summing) != 2:
        raise Unsuitable("it does not sum twice")
    dots, product = summing
    last = inline_epilogue(schedule, product)
    made = schedule.get_producers(dots)
    before = [b for b in schedule.get_producers(product) if not _same(schedule, b, dots)]
    blocks = tvm_compat.stage_blocks(schedule)
    if not last or len(made) != 1 or len(blocks) != 4 + len(before):
        raise Unsuitable("it has stages that are none of such a product")
    return Stages(made[0], dots, product, last, tuple(before))


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
    *outer, height, columns = (v.dom.extent for v in product.iter_vars[:-1])
    *front, rows, _ = (v.dom.extent for v in schedule.get(stages.last).iter_vars)
    known = [tvm_compat.as_int(size) for size in (height, columns)]
    blocks = tvm_compat.as_int(product.iter_vars[-1].dom.extent)
    block = tvm_compat.as_int(dots.iter_vars[-1].dom.extent)
    sizes = [value_of(extent, values) for extent in (*front, rows)]
    if None in (*sizes, *known, blocks, block) or (block or 0) % (2 * GROUP):
        raise Unsuitable("its sizes are not known, or its blocks are of no groups")
    _check_loads(dots, loads, len(outer))
    _check_rows(schedule, stages, product)
    return BlockProduct(
        batches=prod(size or 0 for size in sizes[:-1]),
        rows=sizes[-1] or 0,
        height=known[0] or 0,
        columns=known[1] or 0,
        packed_columns=int(schedule.get(stages.codes).reads[0].source.shape[0]),
        blocks=blocks or 0,
        block=block or 0,
        packed_bits=_count_bits(schedule.get(stages.codes)),
        symbolic=any(tvm_compat.as_int(extent) is None for extent in (*front, rows)),
        outer=len(outer),
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


def _check_rows(schedule: Any, stages: Stages, product: Any) -> None:
    """Check that what follows reads each row of the product's tiles in its own place."""
    from tvm.sym import Analyzer

    last = schedule.get(stages.last)
    axes = [axis.var for axis in last.iter_vars]
    made = product.writes[0].source
    tiles = [region for region in last.reads if region.source.same_as(made)]
    if len(axes) != len(made.shape) - 1 or len(tiles) != 1:
        raise Unsuitable("what follows it has other dimensions")
    height = made.shape[-2]
    wanted = [*axes[:-2], axes[-2] // height, axes[-2] % height, axes[-1]]
    found = [part.min for part in tiles[0].region]
    if not all(Analyzer().can_prove_equal(a, b) for a, b in zip(found, wanted, strict=True)):
        raise Unsuitable("what follows it reads its rows in another order")


def _count_bits(codes: Any) -> float:
    (source,) = (region.source for region in codes.reads)
    sizes = [tvm_compat.param_shape(t) or [] for t in (codes.writes[0].source, source)]
    number, stored = (prod(int(size) for size in shape) for shape in sizes)
    return 8 * stored / number


def count_rows(function: Any, instance: Instance) -> tuple[int, int]:
    """The matrices of rows that a program's result has for a shape, and the rows of each."""
    *front, rows, _ = tvm_compat.param_dims(function.params[-1]) or []
    batches, number = ([value_of(size, dict(instance)) or 0 for size in d] for d in (front, [rows]))
    return prod(batches), number[0]
