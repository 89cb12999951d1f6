"""Schedule a contraction as its knobs say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.guard import Unsuitable
from spaces.passes.dots.group_dots import GROUPS, SUMS
from spaces.passes.tile_marks import CLAMPED, TILE, VERSIONED
from spaces.templates.base import Knobs
from spaces.templates.contraction import register_tile as k
from spaces.templates.contraction.canonical import count_unrolled
from spaces.templates.contraction.knob_model import (
    depth_grows,
    hoists_predicate,
    inner_reduction,
    is_padded,
    tiling,
)
from spaces.templates.contraction.match import Stages, tidy_stages
from spaces.templates.contraction.packing import pack_operands, place_stages, split_groups
from spaces.templates.contraction.product_form import as_product
from spaces.templates.contraction.shape import Contraction
from spaces.templates.contraction.tile_stages import pad, write_back


def write_contraction(schedule: Any, c: Contraction, knobs: Knobs) -> None:
    """Carry out the knobs on a fresh schedule.

    Raises:
        Exception: whatever TVM throws where a primitive does not apply.
    """
    stages = tidy_stages(schedule)
    if c.product:
        product = as_product(schedule, stages)
        if product is None:
            raise Unsuitable("the program is no product of another form")
        stages = product
    stages = _pad(schedule, c, knobs, stages)
    packed = pack_operands(schedule, c, knobs, stages)
    last = _own_tile(schedule, c, stages)
    loops = _split_loops(schedule, c, knobs, _axis_loops(schedule, c, stages.main, last))
    schedule.reverse_compute_at(last, loops.tile)  # before loops are fused: it solves for each
    chunk = _chunk(schedule, c, knobs, loops)
    reduction, step = _tile(schedule, c, knobs, loops)
    write_back(schedule, c, knobs, last)
    place_stages(schedule, c, knobs, packed, chunk, step)
    schedule.decompose_reduction(stages.main, reduction)


@dataclass(frozen=True, slots=True)
class _Loops:
    """Loops around and inside a register tile.

    Attributes:
        chunks: the loops over chunks, which will run in parallel.
        tile: the innermost loop over tiles.
        single: reduction loops that have one step; `reduction` the other reduction loops.
        inner: rows, if any, and columns of a tile.
    """

    chunks: tuple[Any, ...]
    tile: Any
    single: tuple[Any, ...]
    reduction: tuple[Any, ...]
    inner: tuple[Any, ...]


def _pad(schedule: Any, c: Contraction, knobs: Knobs, stages: Stages) -> Stages:
    """Pad extents to multiples of the tiles, where every index is one axis alone."""
    t = tiling(c, knobs)
    width = knobs[k.VECTORS] * knobs[k.LANES]
    # A block of the whole extent has as many tiles as there are.
    multiples = {c.column: (width * (knobs[k.COLUMN_BLOCK] or 1), t.padded_columns)}
    if len(c.rows) == 1:
        multiples[c.rows[0]] = (knobs[k.ROWS] * (knobs[k.ROW_BLOCK] or 1), t.padded_rows)
    padding = [1] * len(c.axes)
    for axis, (multiple, padded) in multiples.items():
        # The padded size of a symbolic extent is unknown; a known one is padded to just that size.
        padding[axis] = multiple if c.axes[axis].symbolic else padded
    if k.leaves_ragged(knobs):
        padding[c.rows[0]] = 1
    grown = any(is_padded(c, axis, padding[axis]) for axis in multiples)
    inner = inner_reduction(c)
    if inner is not None and depth_grows(c, knobs):
        padding[inner] = knobs[k.UNROLL] * c.group
    elif c.groups is not None and is_padded(c, c.groups.axis, c.group):
        padding[c.groups.axis] = c.group
    elif not grown:
        return stages
    return pad(schedule, stages, padding, grown=grown) if c.plain else stages


def _own_tile(schedule: Any, c: Contraction, stages: Stages) -> Any:
    """Let `main` write into a tile of its own; return the block that carries it to the result."""
    last = stages.last
    if last is None:
        last = schedule.cache_write(stages.main, 0, "local")
    else:
        schedule.set_scope(stages.main, 0, "local")
    if not c.column_is_last:
        column = c.axes[c.column].out_dim or 0

        def columns_last(*index: Any) -> list[Any]:
            return [i for d, i in enumerate(index) if d != column] + [index[column]]

        schedule.transform_layout(stages.main, ("write", 0), columns_last)
    return last


def _axis_loops(schedule: Any, c: Contraction, main: Any, last: Any) -> list[Any]:
    """The loop of each axis of `main`; several axes of rows are fused and share one loop.

    A tile of fused rows may begin in the midst of one axis and end in the next, which is only
    sound where the block that carries it away has its rows fused as well.
    """
    if len(c.rows) < 2:
        return list(schedule.get_loops(main))
    extents = [c.axes[i].extent for i in c.rows]
    dtype = str(schedule.get(schedule.get_loops(main)[0]).loop_var.ty.dtype)
    if c.epilogue_keeps_shape:
        places = [c.axes[i].out_dim or 0 for i in c.rows]
        schedule.transform_block_layout(last, _fuse(places, extents, c.out_dims, dtype))
        if not c.column_is_last:  # `_own_tile` moved it
            column = c.axes[c.column].out_dim or 0
            places = [place - (place > column) for place in places]
        schedule.transform_layout(main, ("write", 0), _fuse(places, extents, c.out_dims, dtype))
    schedule.transform_block_layout(main, _fuse(list(c.rows), extents, len(c.axes), dtype))
    loops = iter(schedule.get_loops(main))
    found: list[Any] = []
    for axis in range(len(c.axes)):
        found.append(found[c.rows[0]] if axis in c.rows[1:] else next(loops))
    return found


def _fuse(places: Sequence[int], extents: Sequence[int], ndim: int, dtype: str) -> Any:
    """An index map that fuses neighbouring indices into one."""
    from tvm.tirx import IndexMap

    def fuse(*index: Any) -> list[Any]:
        flat = index[places[0]]
        for place, extent in zip(places[1:], extents[1:], strict=True):
            flat = flat * extent + index[place]
        kept = [i for d, i in enumerate(index) if d not in places[1:]]
        kept[places[0]] = flat
        return kept

    return IndexMap.from_func(fuse, ndim=ndim, index_dtype=dtype)


def _split_loops(schedule: Any, c: Contraction, knobs: Knobs, loops: list[Any]) -> _Loops:
    """Split the loops into chunks, blocks and register tiles; `_tile` does the inside of a tile."""
    t = tiling(c, knobs)
    special = {c.column, *c.rows, *c.outer, *c.reduce_axes}
    ones = [loops[i] for i in range(len(loops)) if i not in special]
    single = [loops[i] for i in c.reduce_axes if c.axes[i].single]
    reduction = [loops[i] for i in c.reduce_axes if not c.axes[i].single]
    outer = [loops[i] for i in c.outer]
    row = loops[c.rows[0]] if c.rows else None
    column = loops[c.column]
    chunk_loops, block_loops, tile_loops = list(outer), [], []
    if outer:
        chunk_loops[-1], inside = schedule.split(outer[-1], [None, knobs[k.OUTER_BLOCK]])
        block_loops.append(inside)
    if row is not None:
        *row_chunk, row_block, row_tile = _split(
            schedule, row, knobs[k.ROW_BLOCK], t.row_block, knobs[k.ROWS], c.ragged_rows
        )
        chunk_loops += row_chunk
        block_loops.append(row_block)
        tile_loops.append(row_tile)
    width = knobs[k.VECTORS] * knobs[k.LANES]
    *column_chunk, column_block, column_tile = _split(
        schedule, column, knobs[k.COLUMN_BLOCK], t.column_block, width, c.axes[c.column].symbolic
    )
    chunk_loops += column_chunk
    block_loops.insert(0 if knobs[k.COLUMNS_FIRST] else len(block_loops), column_block)
    # The initialization of the sum must lie above all reduction loops.
    schedule.reorder(
        *ones, *chunk_loops, *block_loops, *single, *reduction, *tile_loops, column_tile
    )
    if k.leaves_ragged(knobs) and row is not None:
        if hoists_predicate(c, knobs):
            way = CLAMPED if k.clamps(knobs) else VERSIONED
            schedule.annotate(block_loops[-1], TILE, way)
        else:
            schedule.annotate(row_block, tvm_compat.PARTITION_HINT, True)
    tile = (*tile_loops, column_tile)
    return _Loops(tuple(chunk_loops), block_loops[-1], tuple(single), tuple(reduction), tile)


def _split(
    schedule: Any, loop: Any, wanted: int, block: int, tile: int, symbolic: bool
) -> list[Any]:
    """Split a loop into chunks, tiles of a chunk, and steps of a tile; without the loop over chunks
    where one chunk takes all of an unknown extent."""
    if symbolic and wanted == k.ALL:
        return list(schedule.split(loop, [None, tile]))
    return list(schedule.split(loop, [None, block, tile]))


def _chunk(schedule: Any, c: Contraction, knobs: Knobs, loops: _Loops) -> Any:
    """Fuse the loops over chunks into one, in parallel where threads share the work."""
    chunk = schedule.fuse(*loops.chunks) if len(loops.chunks) > 1 else loops.chunks[0]
    if (tiling(c, knobs).chunks > 1 or c.symbolic) and k.in_threads(knobs):
        schedule.parallel(chunk)
    return chunk


def _tile(schedule: Any, c: Contraction, knobs: Knobs, loops: _Loops) -> tuple[Any, Any]:
    """Schedule the inside of a register tile; return its outermost reduction loop, and the one
    whose steps are unrolled, or that around the tile."""
    several = [i for i in c.reduce_axes if not c.axes[i].single]
    steps, group = split_groups(schedule, c, several, loops.reduction)
    slow, fast = _unroll(schedule, c, knobs, steps)
    *rows, columns = loops.inner
    vectors, lanes = schedule.split(columns, [knobs[k.VECTORS], knobs[k.LANES]])
    schedule.reorder(*loops.single, *slow, *fast, *rows, vectors, lanes, *group)
    schedule.vectorize(lanes)
    if group:
        schedule.annotate(lanes, GROUPS, 1)
    for loop in (*fast, *rows, vectors):
        schedule.unroll(loop)
    sums = (*loops.single, *slow, *fast)[0]
    if c.groups is not None and c.groups.alike:
        schedule.annotate(sums, SUMS, 1)
    return sums, (loops.tile, *loops.single, *slow)[-1]


def _unroll(
    schedule: Any, c: Contraction, knobs: Knobs, reduction: list[Any]
) -> tuple[list[Any], list[Any]]:
    """Split off the innermost reduction steps to unroll, at most the knob's number: the loops that
    stay loops, and those to unroll."""
    extents = [c.count_steps(i) for i in c.reduce_axes if not c.axes[i].single]
    padded = c.plain and inner_reduction(c) is not None
    slow: list[Any] = []
    fast: list[Any] = []
    steps = count_unrolled(c, knobs[k.UNROLL])
    for loop, extent, step in zip(reduction, extents, steps, strict=True):
        if step == 1:
            slow.append(loop)
        elif step == extent and not padded:
            fast.append(loop)
        else:
            outside, inside = schedule.split(loop, [None, step])
            slow.append(outside)
            fast.append(inside)
    return slow, fast
