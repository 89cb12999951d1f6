"""Schedule a contraction as its knobs say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.guard import Unsuitable
from spaces.passes.bf16.dots import PAIRS
from spaces.passes.padded_weights import PADDED_AHEAD
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
from spaces.templates.contraction.panels import lay_out, panels, reduction_order
from spaces.templates.contraction.product_form import as_product
from spaces.templates.contraction.shape import PAIR, Contraction
from spaces.templates.contraction.tile_stages import (
    in_parallel,
    pack_ahead,
    pad,
    write_back,
    zeros_like,
)
from spaces.templates.contraction.weights import find_panel_dims

_COPY_CHUNK = 2048


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
    packed = _pack(schedule, c, knobs, stages)
    last = _own_tile(schedule, c, stages)
    loops = _split_loops(schedule, c, knobs, _axis_loops(schedule, c, stages.main, last))
    schedule.reverse_compute_at(last, loops.tile)  # before loops are fused: it solves for each
    chunk = _chunk(schedule, c, knobs, loops)
    reduction, step = _tile(schedule, c, knobs, loops)
    write_back(schedule, c, knobs, last)
    for operand, block in enumerate(packed):
        if block is None:
            continue
        packed_here = knobs[k.PACK_ROWS if operand == c.rows_of else k.PACK_COLUMNS]
        if knobs[k.STAGE_INSIDE] and operand in c.stages_inside and not packed_here:
            schedule.compute_at(block, chunk)
            _vectorize_copy(schedule, block, knobs[k.LANES])
        elif operand == c.columns_of and packed_here and k.packs_inside(knobs):
            dims = len(schedule.get_loops(block))
            in_step = k.packs_inside(knobs) == k.IN_STEP
            schedule.compute_at(block, step if in_step else chunk, preserve_unit_loops=True)
            inside = schedule.get_loops(block)[-dims:]
            _pack_panels(schedule, c, knobs, operand, inside)
            if in_step:
                schedule.set_scope(block, 0, "local")
            if c.packed_bits is not None:  # numbers of a byte are made together
                steps = inside[reduction_order(c, operand)[-1]]
                schedule.unroll(schedule.split(steps, [None, knobs[k.UNROLL]])[1])
        else:
            _stage_at_root(schedule, c, knobs, operand, block)
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
    elif c.pair is not None and is_padded(c, c.pair, PAIR):
        padding[c.pair] = PAIR
    elif not grown:
        return stages
    return pad(schedule, stages, padding, grown=grown) if c.plain else stages


def _pack(schedule: Any, c: Contraction, knobs: Knobs, stages: Stages) -> list[Any]:
    """Add packing stages; for each operand the packing or padding stage to schedule, or None."""
    blocks = list(stages.before)
    wanted = {
        c.rows_of: (knobs[k.PACK_ROWS], c.rows[-1] if c.rows else None, knobs[k.ROWS]),
        c.columns_of: (knobs[k.PACK_COLUMNS], c.column, knobs[k.VECTORS] * knobs[k.LANES]),
    }
    for operand, (pack, axis, width) in wanted.items():
        constant = c.operands[operand].constant
        layout = lay_out(c, operand, axis if pack else None, width)
        if layout is not None and blocks[operand] is None:
            blocks[operand] = schedule.cache_read(stages.main, operand, "global")
        if constant and blocks[operand] is not None:
            schedule.annotate(blocks[operand], tvm_compat.PREPROC, 1)
        if layout is not None:
            if c.operands[operand].packed_bits is not None:
                _pack_sources(schedule, blocks[operand], c.axes[c.column].dims[operand], width)
            zero = zeros_like(schedule, stages.main, operand) if constant else None
            schedule.transform_layout(stages.main, ("read", operand), layout, pad_value=zero)
        if constant:
            blocks[operand] = None
    return blocks


def _pack_sources(schedule: Any, stage: Any, dim: int | None, width: int) -> None:
    """Pack ahead what a stage makes its numbers of, in panels as those of the stage.

    Args:
        dim: dimension of what the stage writes along which panels have `width` numbers.

    Raises:
        Unsuitable: a source has no such dimension.
    """
    block = schedule.get(stage)
    places = None if dim is None else find_panel_dims(block, dim)
    if places is None:
        raise Unsuitable("packed weights cannot be packed along this axis")
    for number, (place, region) in enumerate(zip(places, block.reads, strict=True)):
        others = [d for d in range(len(region.region)) if d != place]
        pack_ahead(schedule, stage, number, panels(place, width, others))
    schedule.annotate(stage, PADDED_AHEAD, 1)


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
    steps, pair = _split_pairs(schedule, c, several, loops.reduction)
    slow, fast = _unroll(schedule, c, knobs, steps)
    *rows, columns = loops.inner
    vectors, lanes = schedule.split(columns, [knobs[k.VECTORS], knobs[k.LANES]])
    schedule.reorder(*loops.single, *slow, *fast, *rows, vectors, lanes, *pair)
    schedule.vectorize(lanes)
    if pair:
        schedule.annotate(lanes, PAIRS, 1)
    for loop in (*fast, *rows, vectors):
        schedule.unroll(loop)
    return (*loops.single, *slow, *fast)[0], (loops.tile, *loops.single, *slow)[-1]


def _split_pairs(
    schedule: Any, c: Contraction, axes: Sequence[int], loops: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """The loops of some reduction axes over steps, and the one over the products of a step where
    there are several."""
    if c.pair is None:
        return list(loops), []
    split = {i: schedule.split(loops[n], [None, PAIR]) for n, i in enumerate(axes) if i == c.pair}
    steps = [split[i][0] if i == c.pair else loop for i, loop in zip(axes, loops, strict=True)]
    return steps, [split[c.pair][1]]


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


def _vectorize_copy(schedule: Any, block: Any, lanes: int) -> None:
    """Vectorize the innermost loop of a copy."""
    loop = schedule.get_loops(block)[-1]
    extent = tvm_compat.as_int(schedule.get(loop).extent)
    if extent is None or (extent > lanes and extent % lanes == 0):
        loop = schedule.split(loop, [None, lanes])[1]
        extent = lanes
    if 1 < extent <= lanes:
        schedule.vectorize(loop)


def _pack_panels(
    schedule: Any, c: Contraction, knobs: Knobs, operand: int, loops: Sequence[Any]
) -> list[Any]:
    """Order the loops of a stage that packs panels of columns, or strips of rows, as these lie in
    memory; return the loops around one panel."""
    panels = operand == c.columns_of
    axis = c.column if panels else c.rows[-1]
    dim = c.axes[axis].dims[operand] or 0
    width = knobs[k.VECTORS] * knobs[k.LANES] if panels else knobs[k.ROWS]
    order = reduction_order(c, operand)
    outside, inside = schedule.split(loops[dim], [None, width])
    batch = [loop for d, loop in enumerate(loops) if d != dim and d not in order]
    axes = [i for i in c.reduce_axes if c.axes[i].dims[operand] is not None]
    steps, pair = _split_pairs(schedule, c, axes, [loops[d] for d in order])
    schedule.reorder(*batch, outside, *steps, inside, *pair)
    if panels:
        vectors, lanes = schedule.split(inside, [None, knobs[k.LANES]])
        schedule.vectorize(lanes)
        schedule.unroll(vectors)
    else:
        schedule.unroll(inside)
    return [*batch, outside]


def _stage_at_root(schedule: Any, c: Contraction, knobs: Knobs, operand: int, block: Any) -> None:
    """Schedule a stage before the contraction on its own: chunks in parallel, vectors inside."""
    panels = operand == c.columns_of and knobs[k.PACK_COLUMNS]
    strips = operand == c.rows_of and knobs[k.PACK_ROWS]
    loops = schedule.get_loops(block)
    if panels or strips:
        chunk = schedule.fuse(*_pack_panels(schedule, c, knobs, operand, loops))
        if tvm_compat.as_int(schedule.get(chunk).extent) != 1 and k.in_threads(knobs):
            schedule.parallel(chunk)
        return
    if k.in_threads(knobs):
        in_parallel(schedule, block, _COPY_CHUNK)
    _vectorize_copy(schedule, block, knobs[k.LANES])
