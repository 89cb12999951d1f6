"""Dimensions of ONNX files under the names that they have here."""

from __future__ import annotations

import pytest

from spaces.frontends.onnx.dimension_names import name_dimensions
from tuner.dynamic.derived_names import derive


def declared_name(text: str) -> str:
    return name_dimensions([text])[text]


@pytest.mark.parametrize("text", ["N", "batch_size", "unk__0"])
def test_a_name_stays(text: str) -> None:
    assert declared_name(text) == text


@pytest.mark.parametrize(
    ("text", "name", "of_nine"),
    [
        ("4*h", "h_x4", 36),
        ("h*4", "h_x4", 36),
        ("h + 1", "h_x1_p1", 10),
        ("1 + h", "h_x1_p1", 10),
        ("2*h - 1", "h_x2_m1", 17),
        ("(h - 1)//2 + 1", "h_x1_m1_d2_p1", 5),
        ("h//2", "h_x1_d2", 4),
    ],
)
def test_an_expression_of_one_name_says_its_value(text: str, name: str, of_nine: int) -> None:
    assert declared_name(text) == name
    assert derive(name, {"h": 9}) == of_nine


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("batch-size", "batch_size"),
        ("a*b", "a_b"),
        ("3 - h", "3_h"),
        ("dim.1", "dim_1"),
        ("a b", "a_b"),
    ],
)
def test_anything_else_is_a_name_by_itself(text: str, name: str) -> None:
    assert declared_name(text) == name


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["a-b", "a b", "a.b"], ["a_b", "a_b_2", "a_b_3"]),
        (["a-b", "a_b"], ["a_b_2", "a_b"]),
        (["a-b", "a_b*2"], ["a_b_2", "a_b_x2"]),
        (["4*h", "h*4", "h"], ["h_x4", "h_x4", "h"]),
        (["T", "T_x2"], ["T", "T_x2_2"]),
        (["T", "T-x2"], ["T", "T_x2_2"]),
        (["\ufb01", "fi"], ["\ufb01", "fi"]),
    ],
)
def test_names_stay_apart(texts: list[str], names: list[str]) -> None:
    assert [name_dimensions(texts)[text] for text in texts] == names
