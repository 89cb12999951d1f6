"""Dimensions as those who write programs in Python see them."""

from __future__ import annotations

from typing import Any

import pytest

from spaces.frontends.shape_var import DynamicProgram, ShapeVar
from spaces.ir.symbolic import value_of
from tuner.dynamic.shapes import Domain
from tuner.errors import TunerError

pytestmark = pytest.mark.tvm


def test_values_are_kept_once_each_in_order() -> None:
    assert ShapeVar("T", [24, 5, 24, 128]).values == (5, 24, 128)
    assert ShapeVar("T", range(1, 129)).values == tuple(range(1, 129))
    assert ShapeVar("T").values == ()
    assert repr(ShapeVar("T", [1])) == "ShapeVar('T')"


def test_it_stands_where_tvm_takes_a_dimension() -> None:
    from tvm import relax, te

    t = ShapeVar("T", [2])
    assert str(te.placeholder((t, 4), name="A").shape[0].name) == "T"
    assert value_of(te.placeholder((16 * t, 4), name="A").shape[0], {"T": 2}) == 32
    assert value_of(relax.TensorType((t, 64), "float32").shape.values[0], {"T": 3}) == 3


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (lambda t, u: 16 * t, 80),
        (lambda t, u: t * 16, 80),
        (lambda t, u: t + 3, 8),
        (lambda t, u: 3 + t, 8),
        (lambda t, u: 16 * t + 3, 83),
        (lambda t, u: t + t, 10),
        (lambda t, u: t * u, 35),
        (lambda t, u: t + u, 12),
        (lambda t, u: 2 * (t + u) + t, 29),
        (lambda t, u: t - 1, 4),
        (lambda t, u: 7 - t, 2),
        (lambda t, u: u - t, 2),
        (lambda t, u: t // 2, 2),
        (lambda t, u: (u - 1) // 2 + 1, 4),
    ],
)
def test_it_can_be_calculated_with(of: Any, value: int) -> None:
    assert value_of(of(ShapeVar("T"), ShapeVar("U")), {"T": 5, "U": 7}) == value


@pytest.mark.parametrize("size", [0, -1, 2**31, 2.5, "8"])
def test_a_size_that_no_dimension_has_is_refused(size: Any) -> None:
    with pytest.raises(TunerError, match=f"dimension T cannot have the size {size}$"):
        ShapeVar("T", [1, size])


@pytest.mark.parametrize("name", ["", "1T", "a b", "a-b"])
def test_a_name_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(TunerError, match="cannot be the name of a dimension"):
        ShapeVar(name)


def test_a_program_says_its_dimensions_and_weights() -> None:
    t, b = ShapeVar("T", [5, 24]), ShapeVar("B", [1])
    program = DynamicProgram(None, [t, b], {(5, 1): 2, (24, 1): 0.5})
    weights = {(("B", 1), ("T", 5)): 2.0, (("B", 1), ("T", 24)): 0.5}
    assert program.domain() == Domain((("T", (5, 24)), ("B", (1,))), weights)


def test_without_weights_all_shapes_count_alike() -> None:
    assert DynamicProgram(None, [ShapeVar("T", [5])]).domain().weights is None


def test_a_dimension_without_sizes_is_left_to_the_user() -> None:
    program = DynamicProgram(None, [ShapeVar("T"), ShapeVar("B", [1])])
    assert program.domain() == Domain((("B", (1,)),))


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ({(5,): 1.0}, r"weights: \(5,\) has not a value for each dimension"),
        ({(5, 1): 0.0}, "weights: that of B=1, T=5 must be above 0"),
        ({(5, 1): -1.0}, "weights: that of B=1, T=5 must be above 0"),
        ({(5, 1): float("inf")}, "weights: that of B=1, T=5 must be above 0"),
        ({(5, 1): float("nan")}, "weights: that of B=1, T=5 must be above 0"),
    ],
)
def test_weights_that_do_not_match_are_refused(
    weights: dict[tuple[int, ...], float], says: str
) -> None:
    program = DynamicProgram(None, [ShapeVar("T", [5]), ShapeVar("B", [1])], weights)
    with pytest.raises(TunerError, match=says):
        program.domain()
