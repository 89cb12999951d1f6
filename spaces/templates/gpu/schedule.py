"""Schedule a contraction for a GPU as its knobs say.

Elements outside a shape are guarded in two places only, as in DietCode's local padding: where
threads fetch, and put zeros instead, and where they write results. Between the two, whole tiles are
computed, whatever the shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from spaces.templates.base import Knobs
from spaces.templates.contraction.match import Stages, tidy_stages
from spaces.templates.contraction.shape import Contraction
from spaces.templates.contraction.tile_stages import pad
from spaces.templates.gpu import knob_model as k
from spaces.templates.gpu.knob_model import Block, Roles

_MOST_BATCHES = 65535
"""Blocks along the second and third axis of a grid; along the first there may be 2^31 - 1."""
_UNROLLED = 1024


def write_gpu_contraction(schedule: Any, c: Contraction, roles: Roles, knobs: Knobs) -> None:
    """Carry out the knobs on a fresh schedule.

    Raises:
        Exception: whatever TVM throws where a primitive does not apply.
    """
    stages = tidy_stages(schedule)
    block = k.block_of(knobs)
    stages = _pad(schedule, c, roles, block, stages)
    fetches = [_share(schedule, c, roles, stages, operand) for operand in range(2)]
    last = stages.last
    if last is None:
        last = schedule.cache_write(stages.main, 0, "local")
    else:
        schedule.set_scope(stages.main, 0, "local")
    loops = _tile(schedule, c, roles, knobs, stages.main)
    schedule.reverse_compute_at(last, loops.thread)
    for operand, fetch in enumerate(fetches):
        width = int(k.lanes(c, roles, operand, block))
        _fetch(schedule, fetch, loops, block.threads, width)
        if k.is_turned(c, roles, operand):
            dims = len(c.operands[operand].shape)
            schedule.storage_align(fetch, 0, dims - 2, *k.SPREAD)
    _write(schedule, last, loops, k.store_lanes(c, roles, knobs))
    _in_source(schedule, loops.step)
    for loop in loops.inner:
        schedule.unroll(loop)
    schedule.decompose_reduction(stages.main, loops.step)


@dataclass(frozen=True, slots=True)
class _Loops:
    """Loops of the main block.

    Attributes:
        thread: the loop over the threads of a block.
        step: the loop over steps of the reduction.
        depth: number of loops down to `step`, itself included.
        inner: the loops that one thread runs in a step.
    """

    thread: Any
    step: Any
    depth: int
    inner: tuple[Any, ...]


def _pad(schedule: Any, c: Contraction, roles: Roles, block: Block, stages: Stages) -> Stages:
    """Pad extents to multiples of the tiles, where they may not be multiples."""
    padding = k.padding(c, roles, block)
    if max(padding) == 1:
        return stages
    grown = padding[roles.row] > 1 or padding[roles.column] > 1
    return pad(schedule, stages, padding, grown=grown)


def _share(schedule: Any, c: Contraction, roles: Roles, stages: Stages, operand: int) -> Any:
    """The block that copies an operand into shared memory, the reduction outside the tiled axis."""
    fetch = stages.before[operand]
    if fetch is None:
        fetch = schedule.cache_read(stages.main, operand, "shared")
    else:
        schedule.set_scope(fetch, 0, "shared")
    if k.is_turned(c, roles, operand):
        tiled = c.axes[roles.row if operand == c.rows_of else roles.column].dims[operand]
        reduced = c.axes[roles.reduction].dims[operand]
        schedule.transform_layout(stages.main, ("read", operand), _last(reduced, tiled))
    return fetch


def _last(*dims: int | None) -> Callable[..., list[Any]]:
    """An index map that puts some dimensions after all others, in this order."""

    def order(*index: Any) -> list[Any]:
        kept = [i for d, i in enumerate(index) if d not in dims]
        return [*kept, *(index[d] for d in dims if d is not None)]

    return order


def _tile(schedule: Any, c: Contraction, roles: Roles, knobs: Knobs, main: Any) -> _Loops:
    """Split the loops into blocks, threads, steps, and the part of one thread."""
    loops = list(schedule.get_loops(main))
    rows = [None, knobs[k.ROW_VTHREADS], knobs[k.ROW_THREADS], knobs[k.ROWS]]
    columns = [None, knobs[k.COLUMN_VTHREADS], knobs[k.COLUMN_THREADS], knobs[k.COLUMNS]]
    row_block, *row_threads, row = schedule.split(loops[roles.row], rows)
    column_block, *column_threads, column = schedule.split(loops[roles.column], columns)
    step, inside = schedule.split(loops[roles.reduction], [None, knobs[k.DEPTH]])
    batch = [loops[i] for i in roles.batch]
    tiled = {roles.row, roles.column, roles.reduction, *roles.batch}
    ones = [loop for i, loop in enumerate(loops) if i not in tiled and not c.axes[i].reduce]
    single = [loop for i, loop in enumerate(loops) if i not in tiled and c.axes[i].reduce]
    pairs = [p for pair in zip(row_threads, column_threads, strict=True) for p in pair]
    schedule.reorder(
        *ones, *batch, row_block, column_block, *pairs, *single, step, inside, row, column
    )
    vthread, thread = schedule.fuse(*pairs[:2]), schedule.fuse(*pairs[2:])
    _grid(schedule, c, roles, [*ones, *batch], row_block, column_block)
    schedule.bind(vthread, "vthread.x")
    schedule.bind(thread, "threadIdx.x")
    if single:
        step = schedule.fuse(*single, step)
    inner = (inside, row, column)
    return _Loops(thread, step, len(schedule.get_loops(main)) - len(inner), inner)


def _grid(
    schedule: Any, c: Contraction, roles: Roles, batch: list[Any], row: Any, column: Any
) -> None:
    """Bind loops to the grid: rows, columns, and the batch on an axis of its own where it fits."""
    symbolic = any(c.axes[i].symbolic for i in roles.batch)
    if batch and (symbolic or prod(c.axes[i].extent for i in roles.batch) > _MOST_BATCHES):
        row = schedule.fuse(*batch, row)
    elif batch:
        schedule.bind(schedule.fuse(*batch) if len(batch) > 1 else batch[0], "blockIdx.z")
    schedule.bind(row, "blockIdx.x")
    schedule.bind(column, "blockIdx.y")


def _fetch(schedule: Any, fetch: Any, loops: _Loops, threads: int, width: int) -> None:
    """Have all threads of a block fetch an operand's part of a step together, neighbouring threads
    neighbouring elements."""
    schedule.compute_at(fetch, loops.step)
    own = schedule.get_loops(fetch)[loops.depth :]
    whole = schedule.fuse(*own) if len(own) > 1 else own[0]
    if width > 1:
        _, thread, lanes = schedule.split(whole, [None, threads, width])
        schedule.vectorize(lanes)
    else:
        _, thread = schedule.split(whole, [None, threads])
    schedule.bind(thread, "threadIdx.x")


def _write(schedule: Any, last: Any, loops: _Loops, width: int) -> None:
    """Have each thread write its part of the result, in vectors where no guard can cut one."""
    own = schedule.get_loops(last)[loops.depth - 1 :]
    if own and width > 1:
        outside, lanes = schedule.split(own[-1], [None, width])
        schedule.vectorize(lanes)
        own = [*own[:-1], outside]
    for loop in own:
        schedule.unroll(loop)
    if own:
        _in_source(schedule, own[0])


def _in_source(schedule: Any, loop: Any) -> None:
    """Leave the unrolling within a loop to the CUDA compiler."""
    schedule.annotate(loop, "pragma_auto_unroll_max_step", _UNROLLED)
    schedule.annotate(loop, "pragma_unroll_explicit", 0)
