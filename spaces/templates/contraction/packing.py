"""Schedule the stages before a contraction: operands that are packed, padded or copied."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.guard import Unsuitable
from spaces.passes.arithmetic.code_tables import BYTES
from spaces.passes.dots.mixed_copies import MIXES
from spaces.passes.padded_weights import PADDED_AHEAD
from spaces.templates.base import Knobs
from spaces.templates.contraction import register_tile as k
from spaces.templates.contraction.match import Stages
from spaces.templates.contraction.panels import lay_out, panels, reduction_order
from spaces.templates.contraction.shape import Contraction
from spaces.templates.contraction.tile_stages import in_parallel, pack_ahead, zeros_like
from spaces.templates.contraction.weights import find_panel_dims

_COPY_CHUNK = 2048
_NARROW = (16, 8, 4)
"""Rows of a strip that are copied as a vector."""


def pack_operands(schedule: Any, c: Contraction, knobs: Knobs, stages: Stages) -> list[Any]:
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
                column = c.axes[c.column].dims[operand]
                _pack_sources(schedule, blocks[operand], column, width, k.in_words(knobs))
            zero = zeros_like(schedule, stages.main, operand) if constant else None
            schedule.transform_layout(stages.main, ("read", operand), layout, pad_value=zero)
        if constant:
            blocks[operand] = None
    return blocks


def _pack_sources(schedule: Any, stage: Any, dim: int | None, width: int, in_words: bool) -> None:
    """Pack ahead what a stage makes its numbers of, in panels as those of the stage.

    Args:
        dim: dimension of what the stage writes along which panels have `width` numbers.
        in_words: whether bytes of two codes lie in words, which a table looks up.

    Raises:
        Unsuitable: a source has no such dimension.
    """
    block = schedule.get(stage)
    places = None if dim is None else find_panel_dims(block, dim)
    if places is None:
        raise Unsuitable("packed weights cannot be packed along this axis")
    for number, (place, region) in enumerate(zip(places, block.reads, strict=True)):
        others = [d for d in range(len(region.region)) if d != place]
        grouped = others[-1] if in_words and _has_words(block, region, others) else None
        pack_ahead(schedule, stage, number, panels(place, width, others, grouped, BYTES))
    schedule.annotate(stage, PADDED_AHEAD, 1)


def _has_words(stage: Any, region: Any, others: Sequence[int]) -> bool:
    """Whether what a stage reads is bytes of two of its numbers each, whole words of them."""
    sizes = [tvm_compat.param_shape(t) or [] for t in (stage.writes[0].source, region.source)]
    numbers, stored = (prod(int(size) for size in shape) for shape in sizes)
    codes = str(region.source.dtype) == "uint8" and numbers == 2 * stored
    return codes and bool(others) and int(sizes[1][others[-1]]) % BYTES == 0


def place_stages(
    schedule: Any, c: Contraction, knobs: Knobs, packed: Sequence[Any], chunk: Any, step: Any
) -> None:
    """Schedule the stages that `pack_operands` left: apart, or inside the loops of the contraction.

    Args:
        packed: for each operand its stage, or None.
        chunk: the loop over chunks, and `step` that over the unrolled steps of a sum.
    """
    for operand, block in enumerate(packed):
        if block is None:
            continue
        packed_here = knobs[k.PACK_ROWS if operand == c.rows_of else k.PACK_COLUMNS]
        if knobs[k.STAGE_INSIDE] and operand in c.stages_inside and not packed_here:
            schedule.compute_at(block, chunk)
            _copy(schedule, c, knobs, operand, block)
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


def split_groups(
    schedule: Any, c: Contraction, axes: Sequence[int], loops: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """The loops of some reduction axes over steps, and the one over the products of a step where
    there are several."""
    if c.groups is None:
        return list(loops), []
    place = list(axes).index(c.groups.axis)
    steps = list(loops)
    steps[place], group = schedule.split(loops[place], [None, c.group])
    return steps, [group]


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
    _copy(schedule, c, knobs, operand, block)
    if k.in_threads(knobs):
        in_parallel(schedule, block, _COPY_CHUNK)


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
    steps, group = split_groups(schedule, c, axes, [loops[d] for d in order])
    schedule.reorder(*batch, outside, *steps, inside, *group)
    lanes = knobs[k.LANES] if panels else next((n for n in _NARROW if width % n == 0), 1)
    mixes = bool(group) and not c.has_groups(operand) and lanes > 1
    if panels or mixes:
        vectors, vector = schedule.split(inside, [None, lanes])
        schedule.vectorize(vector)
        schedule.unroll(vectors)
        if mixes:
            schedule.annotate(vector, MIXES, 1)
    else:
        schedule.unroll(inside)
    return [*batch, outside]


def _copy(schedule: Any, c: Contraction, knobs: Knobs, operand: int, block: Any) -> None:
    """Schedule a stage that is not packed in panels: vectors, and groups one after another."""
    lanes = knobs[k.LANES]
    if c.groups is None:
        _vectorize_copy(schedule, block, lanes)
        return
    if c.has_groups(operand):
        _vectorize_copy(schedule, block, lanes * c.out_bits // c.operands[operand].bits)
        return
    loops = schedule.get_loops(block)[-len(c.operands[operand].shape) :]
    grouped = c.axes[c.groups.axis].dims[operand] or 0
    if grouped == len(loops) - 1:
        return
    _, group = schedule.split(loops[grouped], [None, c.group])
    far, vector = schedule.split(loops[-1], [None, lanes])
    schedule.reorder(far, vector, group)
    schedule.vectorize(vector)
    schedule.annotate(vector, MIXES, 1)


def _vectorize_copy(schedule: Any, block: Any, lanes: int) -> None:
    """Vectorize the innermost loop of a copy."""
    loop = schedule.get_loops(block)[-1]
    extent = tvm_compat.as_int(schedule.get(loop).extent)
    if extent is None or (extent > lanes and extent % lanes == 0):
        loop = schedule.split(loop, [None, lanes])[1]
        extent = lanes
    if 1 < extent <= lanes:
        schedule.vectorize(loop)
