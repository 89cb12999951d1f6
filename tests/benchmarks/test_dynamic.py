"""Which sizes a comparison of open dimensions is made on."""

from __future__ import annotations

from benchmarks.dynamic import sizes_alone
from tuner.dynamic.search import MEASURED_SHAPES
from tuner.shapes import joint, sampled


def test_few_sizes_are_all_tuned_alone() -> None:
    assert sizes_alone((5, 24, 128), 8) == [5, 24, 128]


def test_of_many_sizes_those_are_tuned_alone_that_no_search_measures() -> None:
    every = tuple(range(1, 129))
    measured = {dict(i)["T"] for i, _ in sampled(joint([("T", every)]), MEASURED_SHAPES)}
    alone = sizes_alone(every, 6)
    assert len(alone) == 6
    assert not measured & set(alone)
    assert min(alone) < 16
    assert max(alone) > 112
