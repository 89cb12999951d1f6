"""What a nest is said to move into a cache is what an ideal cache counts."""

from __future__ import annotations

import itertools
from collections import OrderedDict

import pytest

from spaces.features.loop_nest import Access, Loop, LoopKind, Nest
from spaces.features.traffic import traffic

SIZES = {"i": 12, "j": 10, "k": 14}
TENSORS = (("i", "j"), ("i", "k"), ("k", "j"))
"""Of C += A B: the axes of each tensor, the one written first."""
BYTES = 4


def product(order: str, tiles: dict[str, int]) -> tuple[Nest, list[tuple[str, int, int]]]:
    """The nest of a matrix product, and its loops: axis, steps, and what a step adds to the axis.

    Args:
        order: axes from the outermost loop inwards; one that comes twice is tiled.
        tiles: steps of the inner loop of a tiled axis.
    """
    loops, seen = [], set()
    for axis in order:
        tile = tiles.get(axis, 1)
        inner = axis in seen or axis not in tiles
        steps = (tile if axis in tiles else SIZES[axis]) if inner else SIZES[axis] // tile
        loops.append((axis, steps, 1 if inner else tile))
        seen.add(axis)
    accesses = []
    for axes in TENSORS:
        pitch = {axes[0]: SIZES[axes[1]], axes[1]: 1}
        strides = [pitch.get(axis, 0) * by for axis, _, by in reversed(loops)]
        distinct = [n if axis in axes else 1 for axis, n, _ in reversed(loops)]
        elements = SIZES[axes[0]] * SIZES[axes[1]]
        accesses.append(Access(tuple(strides), tuple(distinct), elements, BYTES))
    nest = Nest(
        tuple(Loop(n, LoopKind.SERIAL, axis == "k") for axis, n, _ in reversed(loops)),
        tuple(accesses),
        0,
    )
    return nest, loops


def counted(loops: list[tuple[str, int, int]], elements: int) -> int:
    """Misses of a cache of so many elements, which forgets the least recently used, in bytes."""
    held: OrderedDict[tuple[int, int, int], None] = OrderedDict()
    misses = 0
    for steps in itertools.product(*(range(n) for _, n, _ in loops)):
        at = dict.fromkeys(SIZES, 0)
        for (axis, _, by), step in zip(loops, steps, strict=True):
            at[axis] += by * step
        for number, axes in enumerate(TENSORS):
            place = (number, at[axes[0]], at[axes[1]])
            misses += place not in held
            held[place] = None
            held.move_to_end(place)
            if len(held) > elements:
                held.popitem(last=False)
    return misses * BYTES


@pytest.mark.each_value
@pytest.mark.parametrize("order", ["ijk", "ikj", "kij", "jki", "ijkij", "ikjik"])
@pytest.mark.parametrize("elements", [8, 40, 90, 200, 2000])
def test_a_products_traffic_is_what_a_cache_counts(order: str, elements: int) -> None:
    tiles = {axis: SIZES[axis] // 2 for axis in set(order) if order.count(axis) > 1}
    nest, loops = product(order, tiles)
    said = traffic(nest, elements * BYTES)
    real = counted(loops, elements)
    assert said.inside_bytes <= elements * BYTES or said.loops_inside == 0
    assert real / 2 <= said.moved_bytes <= real * 2


def test_what_fits_is_moved_once() -> None:
    nest, loops = product("ijk", {})
    whole = sum(SIZES[a] * SIZES[b] for a, b in TENSORS) * BYTES
    assert traffic(nest, 1 << 20).moved_bytes == whole == counted(loops, 1 << 20)
    assert traffic(nest, 1 << 20).loops_inside == 3
