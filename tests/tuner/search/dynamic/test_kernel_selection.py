"""The kernels of a function: chosen from records alone, finalists where there are any."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from tests.tuner.search.dynamic.kernel_world import shape
from tuner.candidate import Candidate, CandidateKind
from tuner.dynamic.dispatch_tree import Leaf, Split, leaves, pick
from tuner.dynamic.kernel_set import KernelSet
from tuner.measure import OnShapes
from tuner.record import Measurement, Record, Status, Trial
from tuner.search.dynamic.kernel_selection import Describe, choose_kernels
from tuner.search.dynamic.kernel_table import Kernel
from tuner.task import Task

SIZES = (1, 16, 128)
TASK = Task("task", "gemm", "module", "target", shapes=tuple((shape(s), 1.0) for s in SIZES))
ESTIMATE_S = (1.0, 2.0, 4.0)


def candidate(name: str) -> Candidate:
    return Candidate(CandidateKind.TRACE, json.dumps(name), "test")


def describe(layouts: Mapping[str, str] | None = None) -> Describe:
    """Kernels of one letter, all with the same estimates; of the layout `rows`, if not told."""

    def found(c: Candidate) -> Kernel | None:
        name = json.loads(c.payload)
        if len(name) > 1:
            return None
        told = OnShapes(ESTIMATE_S, (layouts or {}).get(name, "rows"))
        return Kernel(c, (float(ord(name)),), told)

    return found


def record(
    name: str, size: int, seconds: float, *, rung: int = 0, status: Status = Status.OK
) -> Record:
    trial = Trial(TASK.key, candidate(name), shape(size), rung)
    return Record(trial, Measurement(status, (seconds,)))


def timed(name: str, *seconds: float, rung: int = 0) -> list[Record]:
    """A kernel on all shapes."""
    pairs = zip(SIZES, seconds, strict=True)
    return [record(name, size, taken, rung=rung) for size, taken in pairs]


def chosen(
    records: Iterable[Record], most: int = 4, layouts: Mapping[str, str] | None = None
) -> KernelSet:
    found = choose_kernels(TASK, list(records), describe(layouts), most)
    assert found is not None
    return found


def names(found: KernelSet) -> set[str]:
    return {json.loads(c.payload) for c in found.kernels}


SMALL, LARGE, MIDDLE = timed("s", 1, 4, 16), timed("l", 4, 2, 4), timed("m", 2, 3, 8)


def test_each_shape_gets_its_best_kernel() -> None:
    found = chosen([*SMALL, *LARGE, *MIDDLE])
    assert names(found) == {"s", "l"}
    assert isinstance(found.tree, Split)
    assert found.tree.bound == 1
    taken = [json.loads(found.kernels[s.kernel].payload) for s in found.shapes]
    assert taken == ["s", "l", "l"]
    assert found.loss == pytest.approx(1.0)


def test_the_tree_and_the_shapes_agree_and_every_kernel_is_used() -> None:
    found = chosen([*SMALL, *LARGE, *MIDDLE])
    assert {leaf.kernel for leaf in leaves(found.tree)} == set(range(len(found.kernels)))
    assert [s.kernel for s in found.shapes] == [pick(found.tree, {"T": size}) for size in SIZES]


def test_no_more_kernels_than_wanted() -> None:
    found = chosen([*SMALL, *LARGE, *MIDDLE], most=1)
    assert names(found) == {"m"}, "the one that is never far off"
    assert found.tree == Leaf(0)
    assert found.loss == pytest.approx((2.0 + 1.5 + 2.0) / 3)


def test_the_curve_of_losses_starts_with_one_kernel_and_falls() -> None:
    found = chosen([*SMALL, *LARGE, *MIDDLE, *timed("b", 9, 9, 1)])
    assert len(found.losses) == 3
    assert list(found.losses) == sorted(found.losses, reverse=True)
    assert found.losses[-1] == pytest.approx(1.0)


def test_the_curve_of_losses_goes_on_beyond_the_number_that_is_wanted() -> None:
    """It shows what more kernels would bring."""
    everything = [*SMALL, *LARGE, *MIDDLE, *timed("b", 9, 9, 1)]
    few, many = chosen(everything, most=1), chosen(everything, most=4)
    assert len(few.kernels) == 1
    assert few.losses == many.losses
    assert few.loss == pytest.approx(few.losses[0])


def test_the_curve_of_losses_is_that_of_the_layout_that_was_chosen() -> None:
    """Two of the other would be better, but only one is wanted."""
    layouts = {"m": "rows", "s": "columns", "l": "columns"}
    found = chosen([*SMALL, *LARGE, *MIDDLE], most=1, layouts=layouts)
    assert names(found) == {"m"}
    assert found.losses == (pytest.approx((2.0 + 1.5 + 2.0) / 3),)


def test_weights_decide_what_a_set_is_good_at() -> None:
    heavy = replace(TASK, shapes=((shape(1), 50.0), (shape(16), 1.0), (shape(128), 1.0)))
    found = choose_kernels(heavy, [*SMALL, *LARGE], describe(), 1)
    assert found is not None
    assert names(found) == {"s"}
    assert found.latency_s == pytest.approx((50 * 1 + 4 + 16) / 52)


@pytest.mark.parametrize(("most", "taken"), [(1, ["l", "l", "l"]), (2, ["s", "l", "l"])])
def test_the_smallest_shape_gets_a_kernel_of_its_own_where_there_is_room(
    most: int, taken: list[str]
) -> None:
    """However little it weighs."""
    rare = replace(TASK, shapes=((shape(1), 1e-4), (shape(16), 1.0), (shape(128), 1.0)))
    found = choose_kernels(rare, [*SMALL, *LARGE], describe(), most)
    assert found is not None
    assert [json.loads(found.kernels[s.kernel].payload) for s in found.shapes] == taken


def test_finalists_come_before_what_only_looked_fast() -> None:
    """The search saw nothing in it, and now it looks better than what was timed again."""
    never = timed("x", 1.1, 4.4, 18)
    again = timed("s", 1, 4, 40, rung=1)
    assert names(chosen([*never, *SMALL, *again], most=1)) == {"s"}


def test_what_the_search_would_take_has_its_place_though_it_was_not_timed_again() -> None:
    """Time ran out, or a session found it and was stopped."""
    found = timed("x", 0.1, 0.1, 0.1)
    again = [*timed("s", 1, 4, 16, rung=1), *timed("l", 4, 2, 4, rung=1)]
    assert names(chosen([*found, *SMALL, *LARGE, *again])) == {"x"}


def test_a_finalist_is_as_fast_as_it_was_when_timed_again() -> None:
    found = chosen([*SMALL, *timed("s", 3, 6, 9, rung=1), *timed("s", 2, 6, 10, rung=2)])
    assert [s.latency_s for s in found.shapes] == [2.0, 6.0, 9.0]


def test_one_that_was_timed_again_on_some_shapes_only_is_as_fast_as_before_on_the_others() -> None:
    """Its workers were lost, or time ran out."""
    lost = record("l", 16, 0.0, rung=1, status=Status.LOST)
    part = [record("l", 1, 4, rung=1), lost, record("l", 128, 5, rung=1)]
    found = chosen([*SMALL, *LARGE, *part, *timed("s", 1, 4, 16, rung=1)])
    assert names(found) == {"s", "l"}
    assert [s.latency_s for s in found.shapes] == [1.0, 2.0, 5.0]


def test_a_machine_that_has_become_slower_does_not_speak_against_finalists() -> None:
    """What was not timed again is taken to be as much slower as the others are."""
    again = [*timed("s", 2, 8, 32, rung=1), record("l", 1, 8, rung=1)]
    found = chosen([*timed("s", 1, 4, 16), *timed("l", 4, 6, 5), *again])
    taken = [json.loads(found.kernels[s.kernel].payload) for s in found.shapes]
    assert taken == ["s", "s", "l"]
    assert [s.latency_s for s in found.shapes] == [2.0, 8.0, 10.0]


def test_a_set_is_compared_with_the_best_of_all_that_was_measured() -> None:
    """Whether that may be in it or not: it would be too many, or of another layout."""
    again = [record("m", size, seconds, rung=1) for size, seconds in ((1, 2), (16, 3), (128, 8))]
    found = chosen([*SMALL, *LARGE, *MIDDLE, *again], most=1)
    assert names(found) == {"m"}
    assert [s.best_s for s in found.shapes] == [1.0, 2.0, 4.0]
    assert found.loss == pytest.approx((2.0 + 1.5 + 2.0) / 3)


def test_a_finalist_that_failed_when_timed_again_is_not_taken() -> None:
    bad = [*timed("x", 0.1, 0.1, 0.1), *timed("x", 0.1, 0.1, 0.1, rung=1)]
    wrong = record("x", 16, 0.1, rung=2, status=Status.WRONG)
    assert names(chosen([*SMALL, *bad, wrong, *timed("s", 1, 4, 16, rung=1)])) == {"s"}


def test_layouts_are_never_mixed() -> None:
    layouts = {"s": "rows", "m": "rows", "l": "columns"}
    found = chosen([*SMALL, *MIDDLE, *LARGE], layouts=layouts)
    assert len({layouts[name] for name in names(found)}) == 1


def test_a_shape_that_was_not_measured_is_predicted() -> None:
    found = chosen([record("s", 1, 3.0)])
    assert [s.measured for s in found.shapes] == [True, False, False]
    assert [s.latency_s for s in found.shapes] == pytest.approx([3.0, 6.0, 12.0])


# How good the predictions were.


def test_one_that_is_only_predicted_does_not_take_a_shape_from_one_that_was_measured() -> None:
    """The least of what is predicted of many is luck."""
    known = timed("a", 1, 2, 4)
    guessed = [record("b", 1, 0.5), record("b", 16, 2.0)]
    found = chosen([*known, *guessed])
    taken = [json.loads(found.kernels[s.kernel].payload) for s in found.shapes]
    assert (taken[0], taken[2]) == ("b", "a")
    assert all(s.measured for s in found.shapes)


def test_without_finalists_nothing_is_said_of_predictions() -> None:
    found = chosen([*SMALL, *LARGE])
    assert (found.error, found.judged) == (None, 0)


def test_pairs_that_the_search_had_measured_judge_no_prediction() -> None:
    found = chosen([*SMALL, *timed("s", 2, 4, 8, rung=1)])
    assert (found.error, found.judged) == (None, 0)


def test_predictions_are_judged_by_what_finalists_took_where_the_search_had_not_looked() -> None:
    """The search saw it take its estimate on one shape, and so expects 2 and 4 on the others."""
    found = chosen([record("s", 1, 1.0), *timed("s", 1.0, 4.0, 3.2, rung=1)])
    assert found.judged == 2
    assert found.error == pytest.approx((0.5 + 0.25) / 2)


def test_what_else_the_machine_did_in_the_meantime_is_no_error_of_predictions() -> None:
    """All takes half as much again among the finalists, also what the search had measured."""
    found = chosen([record("s", 1, 1.0), *timed("s", 1.5, 3.0, 6.0, rung=1)])
    assert found.judged == 2
    assert found.error == pytest.approx(0.0, abs=1e-9)


def test_of_several_timings_of_a_pair_the_best_judges() -> None:
    again = [*timed("s", 1.0, 9.0, 9.0, rung=1), *timed("s", 1.0, 2.0, 4.0, rung=2)]
    found = chosen([record("s", 1, 1.0), *again])
    assert found.judged == 2
    assert found.error == pytest.approx(0.0, abs=1e-9)


# Where there is nothing to choose.


def test_no_set_where_nothing_of_use_was_measured() -> None:
    unknown = [record("default", 16, 1.0)]
    failed = [record("s", 16, 1.0, status=Status.WRONG)]
    elsewhere = [replace(r, trial=replace(r.trial, task_key="other")) for r in SMALL]
    static = [replace(r, trial=replace(r.trial, instance=())) for r in SMALL]
    for records in ([], unknown, failed, elsewhere, static):
        assert choose_kernels(TASK, records, describe(), 4) is None


def test_what_is_no_kernel_does_not_stand_in_the_way() -> None:
    """Such as the default schedule, however fast it was."""
    default = [record("default", size, 0.1, rung=rung) for size in SIZES for rung in (0, 1)]
    assert names(chosen([*default, *SMALL])) == {"s"}
