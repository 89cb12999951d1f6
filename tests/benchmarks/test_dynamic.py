"""Which sizes a comparison of symbolic dimensions is made on."""

from __future__ import annotations

from typing import Any

from benchmarks.dynamic import mean_error, predicted, predicted_error, sizes_alone
from tuner.dynamic.dispatch_tree import Leaf
from tuner.dynamic.kernel_set import KernelSet, ShapeTimes
from tuner.dynamic.shapes import choose_measured, joint


def test_few_sizes_are_all_tuned_alone() -> None:
    assert sizes_alone((5, 24, 128), 8) == [5, 24, 128]


def test_of_many_sizes_those_are_tuned_alone_that_no_search_measures() -> None:
    every = tuple(range(1, 129))
    measured = {dict(i)["T"] for i, _ in choose_measured(joint([("T", every)]))}
    alone = sizes_alone(every, 6)
    assert len(alone) == 6
    assert not measured & set(alone)
    assert min(alone) < 16
    assert max(alone) > 112


def test_what_was_predicted_is_judged_where_nothing_was_measured() -> None:
    raced = [
        {"T": 5, "predicted_ms": 1.0, "was_measured": True, "ours_ms": {"median": 2.0}},
        {"T": 6, "predicted_ms": 1.5, "was_measured": False, "ours_ms": {"median": 2.0}},
        {"T": 7, "predicted_ms": 1.5, "was_measured": False, "failure": "it crashed"},
    ]
    assert predicted_error(raced) == {"mean": 0.25, "of": 1}
    assert predicted_error(raced[:1]) == {"mean": None, "of": 0}


def test_a_multiple_of_the_dimension_is_found_by_the_dimension() -> None:
    times = [ShapeTimes((("T_x16", 80),), 1.0, 0, 2e-3, 2e-3, measured=True)]
    chosen = KernelSet((), Leaf(0), (), 1.0, tuple(times), None, 0)
    raced: list[dict[str, Any]] = [{"T": 5}]
    assert predicted(raced, chosen) == [{"T": 5, "predicted_ms": 2.0, "was_measured": True}]


def test_predictions_of_all_repeats_count_where_any_were_judged() -> None:
    told = [{"prediction_error": error} for error in (0.1, None, 0.2)]
    assert abs((mean_error(told) or 0.0) - 0.15) < 1e-12
    assert mean_error(told[1:2]) is None
