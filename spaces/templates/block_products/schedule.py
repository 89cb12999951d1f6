"""Schedule a product of bytes in blocks as its knobs say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spaces.ir import tvm_compat
from spaces.passes.dots.group_dots import GROUPS
from spaces.passes.padded_weights import PADDED_AHEAD
from spaces.passes.tile_marks import SKIPPED, TILE
from spaces.targets.cpu import GROUP
from spaces.templates.base import Knobs
from spaces.templates.block_products.shape import BlockProduct, Stages, find_stages
from spaces.templates.contraction import register_tile as k
from spaces.templates.contraction.tile_stages import pack_ahead

_VECTOR_BYTES = 64
_MOST_GROUPS = 8
"""Of a block, that are summed in one step of a loop."""


def write_product(schedule: Any, p: BlockProduct, knobs: Knobs, lanes: int) -> None:
    """Carry out the knobs on a fresh schedule.

    Args:
        lanes: sums of a vector.

    Raises:
        Exception: whatever TVM throws where a primitive does not apply.
    """
    stages = find_stages(schedule)
    width = knobs[k.VECTORS] * lanes
    _pack(schedule, stages, width)
    schedule.set_scope(stages.product, 0, "local")
    schedule.transform_layout(stages.product, ("write", 0), _flat_rows(p.height))
    *outer, rows, columns, blocks = schedule.get_loops(stages.product)
    parts, rows = schedule.split(rows, [None, knobs[k.ROWS]])
    chunks, tiles, columns = schedule.split(columns, [None, knobs[k.COLUMN_BLOCK], width])
    schedule.reorder(chunks, tiles, *outer, parts, blocks, rows, columns)
    schedule.reverse_compute_at(stages.last, parts, preserve_unit_loops=True)
    schedule.annotate(parts, TILE, SKIPPED)
    in_step = knobs[k.PACK_INSIDE] == k.IN_STEP
    schedule.compute_at(stages.dots, blocks, preserve_unit_loops=True)
    schedule.compute_at(stages.codes, blocks if in_step else tiles, preserve_unit_loops=True)
    _unpack(schedule, stages.codes, width)
    _tile(schedule, (rows, columns), lanes)
    _tile(schedule, schedule.get_loops(stages.last)[-2:], lanes)
    if knobs[k.PARALLEL]:
        schedule.parallel(chunks)
    _multiply(schedule, p, stages.dots, lanes)
    _tile(schedule, schedule.get_loops(schedule.decompose_reduction(stages.product, blocks))[-2:],
          lanes)  # fmt: skip


def _pack(schedule: Any, stages: Stages, width: int) -> None:
    """Lay codes out in panels of columns, groups of terms next to one another, and what there is
    for each column and block in panels; constants are packed ahead."""
    pack_ahead(schedule, stages.codes, 0, _groups(width))
    schedule.annotate(stages.codes, PADDED_AHEAD, 1)
    schedule.transform_layout(stages.codes, ("write", 0), _groups(width))
    for stage in stages.before:
        schedule.annotate(stage, tvm_compat.PREPROC, 1)
        schedule.transform_layout(stage, ("write", 0), _panels(width))
    schedule.set_scope(stages.dots, 0, "local")


def _groups(width: int) -> Callable[..., list[Any]]:
    from tvm.tirx import floordiv, floormod

    def place(n: Any, at: Any) -> list[Any]:
        within = floormod(n, width) * GROUP + floormod(at, GROUP)
        return [floordiv(n, width), floordiv(at, GROUP), within]

    return place


def _flat_rows(height: int) -> Callable[..., list[Any]]:
    return lambda *index: [*index[:-3], index[-3] * height + index[-2], index[-1]]


def _panels(width: int) -> Callable[..., list[Any]]:
    from tvm.tirx import floordiv, floormod

    return lambda n, block: [floordiv(n, width), block, floormod(n, width)]


def _unpack(schedule: Any, codes: Any, width: int) -> None:
    """Make codes of packed ones in whole vectors, those of a packed vector together."""
    columns, places = schedule.get_loops(codes)[-2:]
    groups, inside = schedule.split(places, [None, GROUP])
    each, both = schedule.split(groups, [None, 2])
    schedule.reorder(both, columns, inside)
    bytes_ = schedule.fuse(columns, inside)
    lanes = min(_VECTOR_BYTES, width * GROUP)
    vectors, vector = schedule.split(bytes_, [None, lanes])
    schedule.reorder(each, vectors, both, vector)
    schedule.unroll(vectors)
    schedule.unroll(both)
    schedule.vectorize(vector)


def _tile(schedule: Any, loops: Sequence[Any], lanes: int) -> None:
    rows, columns = loops
    vectors, vector = schedule.split(columns, [None, lanes])
    schedule.unroll(rows)
    schedule.unroll(vectors)
    schedule.vectorize(vector)


def _multiply(schedule: Any, p: BlockProduct, dots: Any, lanes: int) -> None:
    """Sum the products of a block, a group at a time."""
    *_, rows, columns, terms = schedule.get_loops(dots)
    vectors, vector = schedule.split(columns, [None, lanes])
    most = max(n for n in range(1, _MOST_GROUPS + 1) if p.block // GROUP % n == 0)
    far, near, group = schedule.split(terms, [None, most, GROUP])
    schedule.reorder(far, near, rows, vectors, vector, group)
    schedule.vectorize(vector)
    schedule.annotate(vector, GROUPS, 1)
    for loop in (near, rows, vectors):
        schedule.unroll(loop)
    schedule.decompose_reduction(dots, far)
