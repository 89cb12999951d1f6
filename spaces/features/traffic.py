"""How many bytes a loop nest moves into a cache of some size. Pure.

The cache is taken to be ideal: of any shape, the least recently used goes first. Those innermost
loops whose data fit together are run from it; the next loop brings in what it moves to, and each
further step of the loops around it brings in all of that again. (Reuse distances, as Ansor's and
TVM's features have them, for one nest.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from spaces.features.loop_nest import Access, Nest


@dataclass(frozen=True, slots=True)
class Traffic:
    """A nest's use of one cache.

    Attributes:
        loops_inside: number of innermost loops whose data fit.
        inside_bytes: what these reach.
        moved_bytes: what is brought into the cache while the whole nest runs once.
    """

    loops_inside: int
    inside_bytes: int
    moved_bytes: int


def traffic(nest: Nest, cache_bytes: int) -> Traffic:
    """What a nest moves into a cache of this size."""
    reached = [_count_reached(nest, inner) for inner in range(len(nest.loops) + 1)]
    inside = max(n for n, size in enumerate(reached) if size <= cache_bytes or n == 0)
    if inside == len(nest.loops):
        return Traffic(inside, reached[inside], reached[inside])
    # What the next loop does not move stays, if there is room for what it moves beside it.
    new = sum(_bytes(a, inside) for a in nest.accesses if a.distinct[inside] > 1)
    stays = reached[inside] + new <= cache_bytes
    moved = sum(_count_moved(access, nest, inside, stays=stays) for access in nest.accesses)
    return Traffic(inside, reached[inside], moved)


def _count_reached(nest: Nest, inner: int) -> int:
    """Bytes that the innermost loops reach together."""
    return sum(_bytes(access, inner) for access in nest.accesses)


def _bytes(access: Access, inner: int) -> int:
    return min(math.prod(access.distinct[:inner]), access.elements) * access.item_bytes


def _count_moved(access: Access, nest: Nest, inside: int, *, stays: bool) -> int:
    again = access.distinct[inside] == 1 and not stays
    along = _bytes(access, inside) * nest.loops[inside].extent if again else 0
    around = math.prod(loop.extent for loop in nest.loops[inside + 1 :])
    return max(along, _bytes(access, inside + 1)) * around
