"""A loop nest as a vector: its loops one by one, and their consequences for the hardware.

All numbers that span orders of magnitude are base-2 logarithms.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from spaces.features.loop_nest import LoopKind, Nest

Vector = npt.NDArray[np.float32]
_Table = npt.NDArray[np.float64]

_POSITIONS = 12
"""Loops described one by one, from the innermost outwards."""
_ACCESSES = 4
_LOOP_COLUMNS = 6
_LINE_BYTES = 64
_CACHE_BYTES = (2 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20)
"""Cache sizes, smallest first. They are no machine's own: the model finds out which matter."""
_SUMMARY = 2 * len(_CACHE_BYTES) + 9 + 3 * _ACCESSES + 3 + _ACCESSES - 1

NEST_LENGTH = _POSITIONS * (_LOOP_COLUMNS + 2 * _ACCESSES) + _SUMMARY


def nest_vector(nest: Nest | None, cores: int) -> Vector:
    """`NEST_LENGTH` numbers that describe a nest; zeros for none.

    Args:
        cores: cores of the target, for how evenly parallel loops fill them.
    """
    if nest is None:
        return np.zeros(NEST_LENGTH, dtype=np.float32)
    footprints = _footprints(nest)
    parts = [
        _loop_table(nest, footprints).ravel(),
        _traffic(nest, footprints),
        _unrolling(nest, footprints),
        _vectors(nest),
        _register_tile(nest, footprints),
        _parallelism(nest, cores),
    ]
    return np.concatenate(parts).astype(np.float32)


def _footprints(nest: Nest) -> _Table:
    """Elements of each buffer that the innermost p loops reach together, one row for each p."""
    rows = [[1.0] * len(nest.accesses)]
    for p in range(len(nest.loops)):
        rows.append(
            [
                float(min(f * a.distinct[p], a.elements))
                for f, a in zip(rows[-1], nest.accesses, strict=True)
            ]
        )
    return np.array(rows)


def _loop_table(nest: Nest, footprints: _Table) -> _Table:
    table = np.zeros((_POSITIONS, _LOOP_COLUMNS + 2 * _ACCESSES))
    n = len(nest.accesses)
    kinds = (LoopKind.VECTORIZED, LoopKind.UNROLLED, LoopKind.PARALLEL, LoopKind.THREAD)
    first_stride, first_footprint = _LOOP_COLUMNS, _LOOP_COLUMNS + _ACCESSES
    for p in range(_POSITIONS):
        if p < len(nest.loops):
            loop = nest.loops[p]
            table[p, 0] = math.log2(loop.extent)
            table[p, 1:5] = [loop.kind == kind for kind in kinds]
            table[p, 5] = loop.reduces
            table[p, first_stride : first_stride + n] = [
                math.log2(1 + abs(a.strides[p])) for a in nest.accesses
            ]
        reached = footprints[min(p + 1, len(nest.loops))]
        table[p, first_footprint : first_footprint + n] = np.log2(reached)
    return table


def _outer(nest: Nest) -> _Table:
    """The number of times that the innermost p loops run as a whole, for each p."""
    extents = [float(loop.extent) for loop in nest.loops]
    return np.array([math.prod(extents[p:]) for p in range(len(extents) + 1)])


def _lines(nest: Nest, footprints: _Table) -> _Table:
    """Cache lines behind the footprints: contiguous elements share them."""
    runs = np.ones_like(footprints)
    for j, access in enumerate(nest.accesses):
        for p in range(len(nest.loops)):
            goes_on = abs(access.strides[p]) == runs[p, j]
            runs[p + 1, j] = runs[p, j] * (access.distinct[p] if goes_on else 1)
    per_line = np.array([_LINE_BYTES / a.item_bytes for a in nest.accesses])
    lines: _Table = np.ceil(footprints / np.minimum(runs, per_line))
    return lines


def _traffic(nest: Nest, footprints: _Table) -> _Table:
    """For each cache size: lines moved if all that fits is reused, and the number of refills."""
    lines, outer = _lines(nest, footprints), _outer(nest)
    found: list[float] = []
    for size in _CACHE_BYTES:
        fits = np.flatnonzero(lines.sum(axis=1) * _LINE_BYTES <= size)
        p = int(fits[-1]) if len(fits) else 0
        found += [math.log2(float(lines[p].sum() * outer[p])), math.log2(float(outer[p]))]
    return np.array(found)


def _unrolling(nest: Nest, footprints: _Table) -> _Table:
    """The unroll limit, the iterations it unrolls together, and the footprints of these."""
    unrolled, depth = 1, 0
    for p, loop in enumerate(nest.loops):
        if loop.kind != LoopKind.VECTORIZED:
            if unrolled * loop.extent > max(nest.unroll_step, 1):
                break
            unrolled *= loop.extent
        depth = p + 1
    head = [math.log2(1 + nest.unroll_step), math.log2(unrolled)]
    return np.array(head + _pad_log2(footprints[depth]))


def _vectors(nest: Nest) -> _Table:
    """Lanes of the vectorized loops, how they fill registers, strides, and instructions."""
    lanes, strides = 1, [0] * len(nest.accesses)
    for p, loop in enumerate(nest.loops):
        if loop.kind == LoopKind.VECTORIZED:
            lanes *= loop.extent
            strides = [abs(a.strides[p]) for a in nest.accesses]
    width = _LINE_BYTES / nest.accesses[0].item_bytes
    contiguous = all(stride <= 1 for stride in strides)
    speedup = min(lanes, width) if contiguous else 1.0
    classes = [min(stride, 2) for stride in strides]
    return np.array(
        [
            math.log2(lanes),
            math.log2(math.gcd(lanes, _LINE_BYTES)),
            lanes / width - math.floor(lanes / width),
            *classes,
            *[0.0] * (_ACCESSES - len(classes)),
            math.log2(float(_outer(nest)[0]) / speedup),
            contiguous,
        ]
    )


def _register_tile(nest: Nest, footprints: _Table) -> _Table:
    """Footprints within the innermost reduction loop, without and with that loop."""
    last = len(nest.loops)
    depth = next((p for p, loop in enumerate(nest.loops) if loop.reduces), last)
    around = min(depth + 1, last)
    return np.array([depth, *_pad_log2(footprints[depth]), *_pad_log2(footprints[around])])


def _parallelism(nest: Nest, cores: int) -> _Table:
    """Pieces of parallel work, how unevenly they fill the cores (1 is even), number of loops."""
    pieces = math.prod(loop.extent for loop in nest.loops if loop.kind == LoopKind.PARALLEL)
    return np.array(
        [math.log2(pieces), math.ceil(pieces / cores) * cores / pieces, len(nest.loops)]
    )


def _pad_log2(footprint: _Table) -> list[float]:
    return [*np.log2(footprint), *[0.0] * (_ACCESSES - len(footprint))]
