"""Inputs that a model is compared on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spaces.frontends.inputs import InputSpec
from spaces.import_check.draws import draw
from tuner.request.model_spec import IntRange

FLOATS = InputSpec("x", (64, 64), "float32")


def test_each_draw_is_the_same_each_time_and_no_other() -> None:
    first, again = (draw([FLOATS], (), 1)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, draw([FLOATS], (), 0)[0])


def test_the_second_has_zeros_of_both_signs_and_values_beyond_thresholds() -> None:
    (drawn,) = draw([FLOATS], (), 1)
    zeros = drawn[drawn == 0]
    assert {*np.signbit(zeros)} == {True, False}
    assert drawn.max() == 256
    assert drawn.dtype == np.float32


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integers_of_8_bits_are_of_their_whole_range(dtype: str) -> None:
    (drawn,) = draw([InputSpec("x", (4096,), dtype)], (), 1)
    limits = np.iinfo(dtype)
    assert (drawn.min(), drawn.max()) == (limits.min, limits.max)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint16"])
def test_other_integers_may_be_places_unless_they_are_to_be_small(dtype: str) -> None:
    spec = InputSpec("x", (256,), dtype)
    assert {*draw([spec], (), 1)[0].tolist()} <= {-1, 0, 1, 2, 7}
    assert {*draw([spec], (), 1, wide_integers=False)[0].tolist()} == {0, 1}


def test_what_the_user_gave_is_taken_as_it_is(tmp_path: Path) -> None:
    mine = np.full((64, 64), 3.0, np.float32)
    np.save(tmp_path / "x.npy", mine)
    (drawn,) = draw([FLOATS], [("x", tmp_path / "x.npy")], 1)
    np.testing.assert_array_equal(drawn, mine)
    (drawn,) = draw([InputSpec("x", (9,), "int64")], [("x", IntRange(5, 5))], 1)
    assert {*drawn.tolist()} == {5}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "bool"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2,)])
def test_every_type_and_shape_can_be_drawn(dtype: str, shape: tuple[int, ...]) -> None:
    for number in range(2):
        (drawn,) = draw([InputSpec("x", shape, dtype)], (), number)
        assert drawn.shape == shape
        assert str(drawn.dtype) == dtype
