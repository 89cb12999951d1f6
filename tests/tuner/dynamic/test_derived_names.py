"""Dimensions that follow from another one, as people read and write them."""

from __future__ import annotations

import pytest

from tuner.dynamic.derived_names import bases_of, derive, describe_value, text_of_name
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
