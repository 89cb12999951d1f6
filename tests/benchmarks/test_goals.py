"""Goals beside figures, without a word that no result stands for."""

from __future__ import annotations

import operator

from benchmarks.goals import GOALS, Goal, at, of_rows, table
from benchmarks.page import read_results

FOUND = read_results()


def test_every_goal_has_a_figure_in_the_repository() -> None:
    for goal in GOALS:
        assert goal.look(FOUND[goal.result]) is not None, goal.what


def test_what_nobody_measured_is_said_to_be_not_measured() -> None:
    lines = table({})
    assert len(lines) == 2 + len(GOALS)
    assert all("not measured" in line for line in lines[2:])


def test_figures_are_found_by_their_keys() -> None:
    result = {"a": {"b": 2}, "rows": [{"x": 3}, {"x": None}, {"x": 5}]}
    assert at("a.b")(result) == 2
    assert at("a.c")(result) is None
    assert of_rows(max, "x")(result) == 5
    assert of_rows(max, "y")(result) is None


def test_at_least_and_at_most_are_what_they_say() -> None:
    least = Goal("it", "file", at("a"), operator.ge, 2, "because")
    assert least.reaches(2, least.goal)
    assert not least.reaches(1.9, least.goal)
