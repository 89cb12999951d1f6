"""Index expressions taken apart."""

from __future__ import annotations

from typing import Any

import pytest

from spaces.ir.affine import quotient_of, read_index

pytestmark = pytest.mark.tvm


def variables(count: int) -> tuple[list[Any], dict[Any, int]]:
    from tvm import tirx

    found = [tirx.Var(f"v{i}", "int32") for i in range(count)]
    return found, {v: i for i, v in enumerate(found)}


def test_a_sum_gives_the_step_of_each_variable() -> None:
    (a, b, c), numbers = variables(3)
    index = read_index(a * 4 + b - c * 3 + 7, numbers, frozenset())
    assert index.steps == {0: 4, 1: 1, 2: -3}
    assert index.constant == 7
    assert not index.tangled


def test_steps_add_up_and_cancel() -> None:
    (a, b), numbers = variables(2)
    assert read_index(a + a + b - b, numbers, frozenset()).steps == {0: 2}


def test_products_with_numbers_spread_over_sums() -> None:
    (a, b), numbers = variables(2)
    assert read_index((a + b * 2) * 5, numbers, frozenset()).steps == {0: 5, 1: 10}


def test_what_is_no_sum_is_tangled() -> None:
    (a, b), numbers = variables(2)
    index = read_index(a // 3 + b, numbers, frozenset())
    assert index.steps == {1: 1}
    assert index.tangled == {0}
    assert index.uses == {0, 1}
    assert read_index(a * b, numbers, frozenset()).tangled == {0, 1}


def test_what_is_looked_up_depends_on_where() -> None:
    from tvm import te, tirx

    (a, b), numbers = variables(2)
    table = te.placeholder((9,), "int32")
    index = read_index(tirx.min(table[a + 1], 3) + b, numbers, frozenset())
    assert (index.steps, index.tangled) == ({1: 1}, {0})
    assert read_index(table[a], numbers, frozenset([0])).tangled == set()


def test_fixed_and_unknown_variables_count_as_nothing() -> None:
    (a, b), numbers = variables(2)
    (other,), _ = variables(1)
    index = read_index(a + b * 2 + other, numbers, frozenset([1]))
    assert (index.steps, index.constant) == ({0: 1}, 0)


def test_casts_are_looked_through() -> None:
    (a,), numbers = variables(1)
    assert read_index(a.astype("int64") * 3, numbers, frozenset()).steps == {0: 3}


def test_the_divisor_of_a_variable_is_found_anywhere() -> None:
    (a, b), numbers = variables(2)
    assert quotient_of([b, a // 16 * 8 + b], numbers, 0) == 16
    assert quotient_of([b, a // 16 * 8 + b], numbers, 1) is None
    assert quotient_of([(a + b) // 4], numbers, 0) is None
