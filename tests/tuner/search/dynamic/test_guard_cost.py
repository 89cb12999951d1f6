"""What a guard costs is measured: against a near shape that needs none, or it is not known."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.tuner.search.dynamic.kernel_world import kernel_candidate, shape
from tuner.measure import OnShapes
from tuner.record import Measurement, Record, Status, Trial
from tuner.search.dynamic.guard_cost import guard_s
from tuner.search.dynamic.kernel_table import Kernel, Kernels

SIZES = (8, 13, 16, 17, 32, 67)
TILE = 8


def table(
    again: Mapping[int, float], *, searched: Mapping[int, float] | None = None, known: bool = True
) -> Kernels:
    """One kernel with tiles of 8, and what it took."""
    candidate = kernel_candidate((TILE, 0, "rows"))
    tiles = [-(-size // TILE) * TILE for size in SIZES]
    padding = tuple(1 - size / tile for size, tile in zip(SIZES, tiles, strict=True))
    work = tuple(map(float, SIZES))
    made = Kernel(
        candidate,
        (),
        OnShapes(work, "rows"),
        padding=padding if known else (),
        work=work if known else (),
    )
    kernels = Kernels(tuple((shape(size), 1.0) for size in SIZES))
    kernels.add(made)
    for rung, times in ((0, searched or {}), (1, again)):
        for size, seconds in times.items():
            trial = Trial("task", candidate, shape(size), rung)
            kernels.observe(Record(trial, Measurement(Status.OK, (seconds,))))
    return kernels


def cost(kernels: Kernels, size: int) -> float | None:
    return guard_s(kernels, 0, SIZES.index(size))


def test_it_costs_what_a_shape_takes_beyond_the_pace_of_a_near_one_without_rest() -> None:
    assert cost(table({16: 4.0, 13: 4.0}), 13) == pytest.approx(4.0 - 4.0 * 13 / 16)


def test_of_several_the_nearest_is_compared() -> None:
    kernels = table({8: 1.0, 16: 4.0, 32: 32.0, 17: 5.0})
    assert cost(kernels, 17) == pytest.approx(5.0 - 4.0 * 17 / 16)


def test_where_there_is_no_rest_nothing_is_guarded() -> None:
    assert cost(table({}), 32) == 0.0


def test_without_a_near_shape_it_is_not_known() -> None:
    """A small shape says little of one of twice its work."""
    assert cost(table({32: 4.0, 67: 9.0}), 67) is None
    assert cost(table({17: 4.0, 13: 4.0}), 13) is None, "that one has a rest as well"


def test_times_of_the_search_were_taken_at_other_moments_and_are_not_compared() -> None:
    assert cost(table({13: 4.0}, searched={16: 4.0}), 13) is None
    assert cost(table({16: 4.0}, searched={13: 4.0}), 13) is None


def test_of_a_kernel_whose_tiles_nobody_knows_it_is_not_known() -> None:
    kernels = table({16: 4.0, 13: 4.0}, known=False)
    assert cost(kernels, 13) is None
    assert cost(kernels, 16) is None
