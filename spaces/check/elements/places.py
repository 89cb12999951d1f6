"""The choice of the elements that a large program is computed at.

They form a grid: some indices of each axis, and all their combinations, so that a row or a column
of an operand is read once for many elements. Of each axis there are both ends, what lies on either
side of boundaries that tiles may have, counted from the start or from the end, and random indices.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from spaces.check.draws import Array
from spaces.check.stored import Places

_TILES = (2, 4, 8, 16, 32, 64, 128, 256)


def choose_places(shape: Sequence[int], seed: str, most: int) -> Places:
    """Indices for each axis of a tensor, whose combinations are at most `most` elements."""
    digest = hashlib.sha256(seed.encode()).digest()
    random = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    return tuple(
        _indices(extent, count, random)
        for extent, count in zip(shape, _counts(shape, most), strict=True)
    )


def near_places(found: Array, shape: Sequence[int], most: int) -> Places:
    """A grid that holds the first of some elements, as many of them as `most` allows.

    Args:
        found: their indices, one element a row, the most important first.
    """
    held: list[set[int]] = [set() for _ in shape]
    for row in found:
        wider = [kept | {int(index)} for kept, index in zip(held, row, strict=True)]
        if math.prod(map(len, wider)) > max(most, 1):
            break
        held = wider
    return tuple(np.array(sorted(kept), np.int64) for kept in held)


def _counts(shape: Sequence[int], most: int) -> list[int]:
    """The number of indices of each axis: all of the short ones, equally many of the others."""
    counts = [min(extent, 1) for extent in shape]
    while True:
        short = [n for n, extent in enumerate(shape) if counts[n] < extent]
        grown = [c + (n in short) for n, c in enumerate(counts)]
        if not short or math.prod(grown) > most:
            return counts
        counts = grown


def _indices(extent: int, count: int, random: np.random.Generator) -> Array:
    if count >= extent:
        return np.arange(extent)
    chosen = dict.fromkeys([0, extent - 1][:count])
    while len(chosen) < count // 2:
        chosen[_beside_a_tile(extent, random)] = None
    while len(chosen) < count:
        chosen[int(random.integers(extent))] = None
    return np.array(sorted(chosen), np.int64)


def _beside_a_tile(extent: int, random: np.random.Generator) -> int:
    """The last index of a tile or the first of the next one, for some size of tiles."""
    sizes = [size for size in _TILES if size < extent]
    tile = int(random.choice(sizes))
    edge = tile * int(random.integers(1, (extent - 1) // tile + 1)) - int(random.integers(2))
    return edge if random.integers(2) else extent - 1 - edge
