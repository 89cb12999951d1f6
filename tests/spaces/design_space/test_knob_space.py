"""The space that knobs span: deterministic drafts, ranked by estimate, kept in their traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.realize import realize
from spaces.ir.guard import Unsuitable
from spaces.ir.schedules import InvalidCandidate, code_hash
from spaces.templates.base import Columns, Costs, Knobs, draw, nudge, one_by_one, setting
from tests.contracts.programs import gemm_task, write_down
from tuner.candidate import Candidate, CandidateKind, Draft, knobs_of, of_knobs
from tuner.cost_models.process import ESTIMATE_COLUMN
from tuner.task import Task


class Splits:
    """A template that splits the outer loop of a product; sixteen is too much for it."""

    def __init__(self, values: tuple[int, ...] = (2, 4, 8, 16)) -> None:
        self._values = values

    @property
    def name(self) -> str:
        return "kernel:splits-1"

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return {"by": self._values, "unused": (1,)}

    def costs_s(self, columns: Columns) -> Costs:
        return np.where(columns["by"] < 16, 1.0 / columns["by"], np.inf)

    def apply(self, schedule: Any, knobs: Knobs) -> Any:
        if knobs["by"] == 2:
            raise Unsuitable("two is refused\nsecond line")
        (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
        loop = schedule.get_loops(block)[0]
        schedule.split(loop, [None, knobs["by"]])
        return schedule


@pytest.fixture(scope="module")
def task() -> Task:
    return gemm_task()


def test_settings_are_drawn_from_the_choices() -> None:
    columns = draw(Splits(), 100, np.random.default_rng(0))
    assert set(columns["by"]) == {2, 4, 8, 16}
    assert set(columns["unused"]) == {1}
    assert setting(columns, 3) == {"by": int(columns["by"][3]), "unused": 1}


def test_a_nudge_changes_what_has_a_choice_and_stays_within_it() -> None:
    columns = nudge(Splits(), {"by": 4, "unused": 1}, 200, np.random.default_rng(0))
    assert set(columns["by"]) <= {2, 4, 8, 16}
    near = np.isin(columns["by"], (2, 8)).mean()
    assert near > 0.5
    assert set(columns["unused"]) == {1}


def test_a_knob_that_a_parent_lacks_takes_any_value() -> None:
    columns = nudge(Splits(), {}, 50, np.random.default_rng(0))
    assert set(columns["by"]) <= {2, 4, 8, 16}


def test_without_a_choice_a_nudge_changes_nothing() -> None:
    columns = nudge(Splits((4,)), {"by": 4}, 5, np.random.default_rng(0))
    assert columns["by"].tolist() == [4] * 5


def test_settings_may_be_looked_at_one_by_one() -> None:
    columns = {"by": np.array([4, 16, 8])}
    costs = one_by_one(columns, lambda k: None if k["by"] == 16 else 1.0 / k["by"])
    assert costs.tolist() == [0.25, np.inf, 0.125]


@pytest.mark.tvm
def test_feasible_settings_are_ranked_by_estimate(task: Task) -> None:
    assert KnobSpace(task, Splits()).ranked == [{"by": by, "unused": 1} for by in (8, 4, 2)]


@pytest.mark.tvm
def test_the_same_draft_is_the_same_point_anywhere(task: Task) -> None:
    first, second = KnobSpace(task, Splits((4, 8))), KnobSpace(task, Splits((4, 8)))
    for seed in range(5):
        draft = Draft(task.key, seed, seed)
        one, two = first.realize_draft(draft), second.realize_draft(draft)
        assert one.candidate == two.candidate


@pytest.mark.tvm
def test_a_point_keeps_its_knobs_and_needs_no_template_to_be_read(task: Task) -> None:
    point = write_down(KnobSpace(task, Splits()), {"by": 8, "unused": 1})
    assert knobs_of(point.candidate) == {"by": 8, "unused": 1}
    again = realize(task, point.candidate)
    assert code_hash(again.mod) == point.code_hash


@pytest.mark.tvm
def test_a_mutation_is_near_its_parent_but_another(task: Task) -> None:
    space = KnobSpace(task, Splits((4, 8)))
    parent = write_down(space, {"by": 8, "unused": 1}).candidate
    child = space.realize_draft(Draft(task.key, 1, 5, parent)).candidate
    assert knobs_of(child) == {"by": 4, "unused": 1}


@pytest.mark.tvm
def test_a_parent_of_another_space_is_only_a_fresh_start(task: Task) -> None:
    space = KnobSpace(task, Splits((4, 8)))
    stranger = Candidate(CandidateKind.TRACE, "[[],[]]", "rules:llvm-1")
    fresh = space.realize_draft(Draft(task.key, 1, 5))
    assert space.realize_draft(Draft(task.key, 1, 5, stranger)).candidate == fresh.candidate


@pytest.mark.tvm
def test_what_tvm_refuses_is_an_invalid_candidate_of_one_line(task: Task) -> None:
    with pytest.raises(InvalidCandidate, match=r"^kernel:splits-1: two is refused$"):
        write_down(KnobSpace(task, Splits()), {"by": 2, "unused": 1})


@pytest.mark.tvm
def test_nothing_feasible_is_an_invalid_candidate(task: Task) -> None:
    with pytest.raises(InvalidCandidate, match="no feasible setting"):
        KnobSpace(task, Splits((16,))).realize_draft(Draft(task.key, 1, 5))


def list_settings(space: KnobSpace, parent: Candidate | None = None) -> list[Candidate]:
    settings = space.settings(Draft("t", 1, seed=1, parent=parent, listing=True))
    estimates_s = np.exp2(settings.features[:, ESTIMATE_COLUMN]).tolist()
    assert estimates_s == [1.0 / row[0] for row in settings.values.tolist()]
    return [settings.candidate(row) for row in range(len(settings))]


@pytest.mark.tvm
def test_a_listing_has_every_feasible_setting_and_those_near_a_parent_after_it(task: Task) -> None:
    space = KnobSpace(task, Splits())
    every = [of_knobs({"by": by, "unused": 1}, space.name) for by in (8, 4, 2)]
    assert list_settings(space) == every
    assert list_settings(space, every[2]) == [every[2], every[0], every[1]]


@pytest.mark.tvm
def test_nothing_is_near_a_candidate_of_another_space_or_of_other_knobs(task: Task) -> None:
    space = KnobSpace(task, Splits())
    assert list_settings(space, of_knobs({"by": 4, "unused": 1}, "kernel:other-1")) == []
    assert list_settings(space, of_knobs({"by": 4}, space.name)) == []
    assert list_settings(space, Candidate(CandidateKind.TRACE, "[[],[]]", space.name)) == []
