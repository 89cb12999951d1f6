"""Dimensions that follow from another one, as people read and write them."""

from __future__ import annotations

import pytest

from tuner.dynamic.derived_names import (
    bases_of,
    close,
    derive,
    describe_value,
    rename,
    text_of_name,
)
from tuner.dynamic.dimension_text import name_expression
from tuner.dynamic.shapes import shape_text


@pytest.mark.parametrize(
    ("name", "text", "at_17", "told"),
    [
        ("T", "T", 17, "T=17"),
        ("T_x3_p1", "3 * T + 1", 52, "T=17"),
        ("T_x16", "16 * T", 272, "T=17"),
        ("T_x1_m1_d2_p1", "(T - 1) // 2 + 1", 9, "(T - 1) // 2 + 1=9"),
        ("T_x3_d2", "(3 * T) // 2", 25, "(3 * T) // 2=25"),
        ("T_x1_p1_x2", "2 * (T + 1)", 36, "T=17"),
        ("T_x2_m1", "2 * T - 1", 33, "T=17"),
    ],
)
def test_a_derived_dimension_is_told_as_it_was_written(
    name: str, text: str, at_17: int, told: str
) -> None:
    assert (bases_of(name), text_of_name(name)) == (("T",), text)
    assert derive(name, {"T": 17}) == at_17
    assert describe_value(name, at_17) == told


def test_a_value_that_none_gives_is_told_of_the_whole() -> None:
    assert describe_value("T_x16", 17) == "16 * T=17"


def test_a_shape_names_each_dimension_once() -> None:
    assert shape_text((("B", 2), ("T", 17), ("T_x3_p1", 52))) == "B=2, T=17"


@pytest.mark.parametrize(
    ("text", "name", "told", "value"),
    [
        ("past + new", "new_plus_past", "new + past", 9),
        ("new+past", "new_plus_past", "new + past", 9),
        ("2 * (past + new) - 1", "new_x2_m1_plus_past_x2", "2 * new - 1 + 2 * past", 17),
        ("past + 16*new + 3", "new_x16_p3_plus_past", "16 * new + 3 + past", 42),
        ("new + past // 2", "new_plus_past_x1_d2", "new + past // 2", 5),
        ("a + b + c", "a_plus_b_plus_c", "a + b + c", 60),
    ],
)
def test_a_sum_follows_from_its_terms(text: str, name: str, told: str, value: int) -> None:
    values = {"past": 7, "new": 2, "a": 10, "b": 20, "c": 30}
    assert name_expression(text) == name
    assert text_of_name(name) == told
    assert derive(name, values) == value
    assert describe_value(name, value) == f"{told}={value}"


@pytest.mark.parametrize("text", ["", "a * b", "(a + b) // 2", "a - b", "2 - a", "3", "a + 'b'"])
def test_what_has_no_name_is_no_expression(text: str) -> None:
    assert name_expression(text) is None


def test_a_sum_is_known_when_all_of_its_terms_are() -> None:
    assert derive("new_plus_past", {"past": 7}) is None
    assert bases_of("new_x2_plus_past_plus_new") == ("new", "past")


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("new_plus_past", "past_x1_p2"),
        ("new_plus_past_x2_p3", "past_x2_p3_p2"),
        ("new_plus_new", 4),
        ("past_plus_past", "past_plus_past"),
        ("new_x1_m2_plus_past", "past"),
        ("past", "past"),
    ],
)
def test_known_terms_become_numbers(name: str, left: int | str) -> None:
    assert close(name, {"new": 2}) == left


def test_the_terms_of_a_sum_may_be_called_otherwise() -> None:
    assert rename("a_x2_plus_b", {"a": "x", "b": "y"}) == "x_x2_plus_y"
