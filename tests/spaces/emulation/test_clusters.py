"""Blocks of a cluster that copy tiles for one another, on the emulated device: products in which
tiles are left over, rounds of persistent blocks, and what else a block of a cluster may do."""

from __future__ import annotations

import numpy as np
import pytest

from spaces.templates.base import Knobs
from spaces.templates.registry import templates_of
from tests.spaces.emulation.product_samples import drawn, sample
from tests.spaces.emulation.samples import Sample, wrong
from tests.spaces.templates.tensor_cores.byte_float_products import ROUGH
from tests.spaces.templates.tensor_cores.byte_products import PROGRAMS as BYTES
from tests.spaces.templates.tensor_cores.products import (
    HOPPER,
    PROGRAMS,
    Programs,
    Sizes,
    task_with,
)

pytestmark = pytest.mark.tvm
CLUSTERS = ((2, 1), (1, 2), (2, 2))
_KNOBS = {
    "swap": 0,
    "consumers": 1,
    "parts": 1,
    "columns": 64,
    "depth": 64,
    "stages": 3,
    "group": 2,
    "splits": 1,
    "persistent": 0,
    "bulk_stores": 0,
}
Ways = tuple[tuple[str, Knobs], ...]
_WAYS: Ways = (
    ("NT", {}),
    ("TT", {"consumers": 2}),
    ("batched NN", {"group": 1}),
    ("open rows", {}),
    ("open rows NT", {"swap": 1, "persistent": 1, "columns": 32}),
    ("NN", {"splits": 2, "parts": 2}),
    ("tokens", {"bulk_stores": 1, "persistent": 1}),
)
"""Programs, whose sizes these clusters' tiles do not divide, each with other knobs."""
_ROUGH_WAYS: Ways = (
    ("NT", {"depth": 128, "splits": 2, "parts": 2}),
    ("tokens", {"depth": 256, "consumers": 2}),
    ("requantized", {"depth": 128, "bulk_stores": 1, "persistent": 1}),
    ("open rows", {"depth": 256, "swap": 1, "persistent": 1, "columns": 32}),
)
"""The same of floats of 8 bits, whose sums leave the tensor cores within a stage."""


def _with_cluster(blocks: tuple[int, int], other: Knobs) -> Knobs:
    return _KNOBS | {"a_blocks": blocks[0], "b_blocks": blocks[1]} | dict(other)


def _is_feasible(name: str, sizes: Sizes, knobs: Knobs, programs: Programs = PROGRAMS) -> bool:
    template, *_ = templates_of(task_with(programs[name][0], sizes, HOPPER))
    columns = {knob: np.array([value]) for knob, value in knobs.items()}
    return bool(np.isfinite(template.costs_s(columns)).all())


def _write(name: str, sizes: Sizes, knobs: Knobs, programs: Programs = PROGRAMS) -> Sample:
    assert _is_feasible(name, sizes, knobs, programs)
    return sample(HOPPER, name, sizes, knobs, programs)


_WAYS_OF = {"halves": (PROGRAMS, _WAYS), "floats of 8 bits": (ROUGH, _ROUGH_WAYS)}


@pytest.mark.parametrize(
    ("kind", "way", "blocks"),
    [
        pytest.param(
            kind, way, blocks, marks=() if number == way % len(CLUSTERS) else pytest.mark.long
        )
        for kind, (_, ways) in _WAYS_OF.items()
        for way in range(len(ways))
        for number, blocks in enumerate(CLUSTERS)
    ],
)
def test_products_are_right_where_clusters_have_tiles_left_over(
    kind: str, way: int, blocks: tuple[int, int]
) -> None:
    """Of open rows there are one, none, and more."""
    programs, ways = _WAYS_OF[kind]
    name, other = ways[way]
    known = name, programs[name][1][-1], _with_cluster(blocks, other)
    assert wrong([_write(*known, programs)]) == {}


@pytest.mark.parametrize("blocks", CLUSTERS)
def test_persistent_clusters_go_from_tile_to_tile(blocks: tuple[int, int]) -> None:
    """There are more tiles than multiprocessors: stages and phases go on from round to round."""
    knobs = _with_cluster(blocks, {"persistent": 1, "columns": 32})
    assert wrong([_write("NT", Sizes(2300, 200, 72), knobs)]) == {}


@pytest.mark.parametrize("swap", [0, 1])
def test_only_what_tensor_maps_copy_is_shared(swap: int) -> None:
    """Rows of one operand do not begin at multiples of 16 bytes: threads copy it."""
    name, sizes = "odd columns NN", Sizes(200, 75, 200)
    shares_a, shares_b = (_with_cluster(blocks, {"swap": swap}) for blocks in ((1, 2), (2, 1)))
    shared, other = (shares_b, shares_a) if swap else (shares_a, shares_b)
    assert not _is_feasible(name, sizes, other)
    assert wrong([_write(name, sizes, shared)]) == {}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "programs", [PROGRAMS, BYTES, ROUGH], ids=["halves", "bytes", "floats of 8 bits"]
)
def test_random_settings_in_clusters_are_right(programs: Programs) -> None:
    settings = [each for each in drawn(HOPPER, 200, programs) if _is_clustered(each)]
    assert len(settings) > 40
    assert wrong(settings) == {}


def _is_clustered(each: Sample) -> bool:
    return any(dict(each.values).get(knob, 1) > 1 for knob in ("a_blocks", "b_blocks"))
