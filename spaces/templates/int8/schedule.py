"""Schedule an int8 matrix product as its knobs say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from spaces.intrinsics.vnni import GROUP, Dot, Mix
from spaces.intrinsics.vnni_registry import register
from spaces.ir import tvm_compat
from spaces.ir.guard import Unsuitable
from spaces.templates.base import Knobs
from spaces.templates.contraction import register_tile as k
from spaces.templates.contraction.match import Stages, tidy_stages
from spaces.templates.contraction.shape import Contraction
from spaces.templates.contraction.tile_stages import in_parallel, pad, write_back
from spaces.templates.int8.knob_model import tiling
from spaces.templates.int8.shape import Products

_COPY_CHUNK = 8192
_COPY_BYTES = 64
_MIXED = (16, 8, 4)
_LINE_GROUPS = 16


def write_products(schedule: Any, p: Products, knobs: Knobs) -> None:
    """Carry out the knobs on a fresh schedule.

    Raises:
        Exception: whatever TVM throws where a primitive does not apply.
    """
    stages = tidy_stages(schedule)
    stages = _pad(schedule, p, knobs, stages)
    before, packed = _pack_operands(schedule, p, knobs, stages)
    last = _own_tile(schedule, p.contraction, stages)
    loops = _tile(schedule, p, knobs, stages.main)
    schedule.reverse_compute_at(last, loops.tile)
    write_back(schedule, p.contraction, knobs, last)
    for operand in range(2):
        stage = before[operand]
        inside = operand == p.contraction.rows_of and knobs[k.STAGE_INSIDE]
        if stage is not None and inside and packed[operand] is None:
            schedule.compute_at(stage, loops.chunk)
            _vectorize_copy(schedule, stage)
        elif stage is not None:
            in_parallel(schedule, stage, _COPY_CHUNK)
            _vectorize_copy(schedule, stage)
        if packed[operand] is not None:
            _pack(schedule, p, knobs, operand, packed[operand])
    _start(schedule, knobs, schedule.decompose_reduction(stages.main, loops.sums))
    dot = _dot(p, knobs)
    register(dot)
    # TVM leaves loops of one step out when it compares programs.
    schedule.tensorize(loops.columns if dot.rows == 1 else loops.rows, dot.name)


def _dot(p: Products, knobs: Knobs) -> Dot:
    return Dot(
        signs=p.signs,
        rows=knobs[k.ROWS],
        vectors=knobs[k.VECTORS],
        lanes=knobs[k.LANES],
        depth=int(tiling(p, knobs).padded_depth),
        step=0 if knobs[k.PACK_ROWS] else p.step,
        unroll=knobs[k.UNROLL],
        columns_first=p.contraction.column < p.contraction.rows[0],
        column_factor_first=p.column_factor_first,
        index_bits=p.index_bits,
    )


@dataclass(frozen=True, slots=True)
class _Loops:
    """Loops of the main block: over chunks, over tiles, the outermost in a tile, rows, columns."""

    chunk: Any
    tile: Any
    sums: Any
    rows: Any
    columns: Any


def _pad(schedule: Any, p: Products, knobs: Knobs, stages: Stages) -> Stages:
    """Pad extents to multiples of the tiles, where every index is one axis alone."""
    c, t = p.contraction, tiling(p, knobs)
    grown = t.padded_rows != c.row_extent or t.padded_columns != c.column_extent
    if not grown and t.padded_depth == p.depth:
        return stages
    padding = [1] * len(c.axes)
    padding[c.column], padding[c.rows[0]] = int(t.padded_columns), int(t.padded_rows)
    padding[p.depth_axis] = GROUP * knobs[k.UNROLL]
    return pad(schedule, stages, padding, grown=grown)


def _pack_operands(
    schedule: Any, p: Products, knobs: Knobs, stages: Stages
) -> tuple[list[Any], list[Any]]:
    """For each operand the stage before it and the block that packs it at run time, or None."""
    c = p.contraction
    before, blocks = list(stages.before), [None, None]
    wanted = [(c.columns_of, c.column, knobs[k.VECTORS] * knobs[k.LANES])]
    if knobs[k.PACK_ROWS]:
        wanted.append((c.rows_of, c.rows[0], knobs[k.ROWS]))
    for operand, axis, width in wanted:
        dim, depth = c.axes[axis].dims[operand], c.axes[p.depth_axis].dims[operand]
        if dim is None or depth is None:
            raise Unsuitable("an operand cannot be packed along this axis")
        if c.operands[operand].constant and not c.operands[operand].staged:
            # The block that pads a constant packs it as well, before the program runs.
            ahead = before[operand] or schedule.cache_read(stages.main, operand, "global")
            schedule.annotate(ahead, tvm_compat.PREPROC, 1)
            before[operand] = None
        else:
            blocks[operand] = schedule.cache_read(stages.main, operand, "global")
        panels = _panels(dim, depth, width, _slow_dims(p, operand))
        schedule.transform_layout(stages.main, ("read", operand), panels)
    return before, blocks


def _slow_dims(p: Products, operand: int) -> list[int]:
    """The reduction dimensions of an operand outside the innermost sum, in order."""
    c = p.contraction
    dims = [c.axes[i].dims[operand] for i in c.reduce_axes if i != p.depth_axis]
    return [d for d in dims if d is not None]


def _panels(dim: int, depth: int, width: int, slow: Sequence[int]) -> Callable[..., list[Any]]:
    """Panels of `width`: batch, panel, outer sums, group, place in panel, place in group."""
    from tvm.tirx import floordiv, floormod

    def place(*index: Any) -> list[Any]:
        return [
            *(i for d, i in enumerate(index) if d not in (dim, depth, *slow)),
            floordiv(index[dim], width),
            *(index[d] for d in slow),
            floordiv(index[depth], GROUP),
            floormod(index[dim], width),
            floormod(index[depth], GROUP),
        ]

    return place


def _own_tile(schedule: Any, c: Contraction, stages: Stages) -> Any:
    """Let `main` write into a tile of its own, rows and columns last; return the tile's reader."""
    last = stages.last
    if last is None:
        last = schedule.cache_write(stages.main, 0, "local")
    else:
        schedule.set_scope(stages.main, 0, "local")
    row, column = c.axes[c.rows[0]].out_dim, c.axes[c.column].out_dim
    places = len(schedule.get(stages.main).writes[0].source.shape)
    tile = [places - 1 if d is None else d for d in (row, column)]
    if tile != [places - 2, places - 1]:

        def tile_last(*index: Any) -> list[Any]:
            return [i for d, i in enumerate(index) if d not in tile] + [index[d] for d in tile]

        schedule.transform_layout(stages.main, ("write", 0), tile_last)
    return last


def _tile(schedule: Any, p: Products, knobs: Knobs, main: Any) -> _Loops:
    c, t = p.contraction, tiling(p, knobs)
    loops = list(schedule.get_loops(main))
    slow = [loops[i] for i in c.reduce_axes if i != p.depth_axis]
    special = {c.column, *c.rows, *c.outer, *c.reduce_axes}
    ones = [loops[i] for i in range(len(loops)) if i not in special]
    chunks, blocks = [loops[i] for i in c.outer], []
    if chunks:
        chunks[-1], inside = schedule.split(chunks[-1], [None, knobs[k.OUTER_BLOCK]])
        blocks.append(inside)
    row_chunk, row_block, rows = schedule.split(
        loops[c.rows[0]], [None, int(t.row_block), knobs[k.ROWS]]
    )
    width = knobs[k.VECTORS] * knobs[k.LANES]
    column_chunk, column_block, columns = schedule.split(
        loops[c.column], [None, int(t.column_block), width]
    )
    chunks += [row_chunk, column_chunk]
    pair = [row_block, column_block]
    blocks += pair[::-1] if knobs[k.COLUMNS_FIRST] else pair
    schedule.reorder(*ones, *chunks, *blocks, *slow, rows, columns, loops[p.depth_axis])
    chunk = schedule.fuse(*chunks)
    if t.chunks > 1:
        schedule.parallel(chunk)
    return _Loops(chunk, blocks[-1], (*slow, rows)[0], rows, columns)


def _start(schedule: Any, knobs: Knobs, block: Any) -> None:
    """Set all sums of a tile to zero."""
    *_, rows, columns = schedule.get_loops(block)
    vectors, lanes = schedule.split(columns, [None, knobs[k.LANES]])
    schedule.vectorize(lanes)
    schedule.unroll(vectors)
    schedule.unroll(rows)


def _pack(schedule: Any, p: Products, knobs: Knobs, operand: int, block: Any) -> None:
    """Copy an operand into panels, in parallel; in vectors wherever bytes are contiguous."""
    c = p.contraction
    of_columns = operand == c.columns_of
    axis = c.column if of_columns else c.rows[0]
    width = knobs[k.VECTORS] * knobs[k.LANES] if of_columns else knobs[k.ROWS]
    dim, depth = c.axes[axis].dims[operand] or 0, c.axes[p.depth_axis].dims[operand] or 0
    loops = schedule.get_loops(block)
    panel, inside = schedule.split(loops[dim], [None, width])
    groups, parts = schedule.split(loops[depth], [None, GROUP])
    slow = [loops[d] for d in _slow_dims(p, operand)]
    batch = [loop for d, loop in enumerate(loops) if d not in (dim, depth, *_slow_dims(p, operand))]
    final = len(loops) - 1
    lanes = next((w for w in _MIXED if width % w == 0), 0)
    if depth == final:
        near = max(d for d in range(1, _LINE_GROUPS + 1) if _extent(schedule, groups) % d == 0)
        far, line = schedule.split(groups, [None, near])
        schedule.reorder(*batch, panel, *slow, far, inside, line, parts)
        schedule.vectorize(parts)
    elif dim == final and depth == final - 1 and lanes:
        outside, mixed = schedule.split(inside, [None, lanes])
        schedule.reorder(*batch, panel, *slow, groups, outside, parts, mixed)
        mix = Mix(str(schedule.get(block).writes[0].source.dtype), lanes, p.index_bits)
        register(mix)
        schedule.tensorize(parts, mix.name)
    else:
        schedule.reorder(*batch, panel, *slow, groups, inside, parts)
        schedule.unroll(parts)
    chunk = schedule.fuse(*batch, panel)
    if _extent(schedule, chunk) > 1:
        schedule.parallel(chunk)


def _extent(schedule: Any, loop: Any) -> int:
    return int(schedule.get(loop).extent)


def _vectorize_copy(schedule: Any, block: Any) -> None:
    """Vectorize the innermost loop of a copy."""
    loop = schedule.get_loops(block)[-1]
    extent = _extent(schedule, loop)
    lanes = next(w for w in (_COPY_BYTES, 32, 16, 8, 4, 2, 1) if extent % w == 0)
    if extent > lanes > 1:
        loop = schedule.split(loop, [None, lanes])[1]
    if lanes > 1:
        schedule.vectorize(loop)
