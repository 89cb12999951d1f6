"""Values for a model's inputs. Needs no TVM."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.frontends.inputs import InputSpec, make_inputs
from tests.needed import needed_package
from tuner.errors import TunerError
from tuner.request.model_spec import InputArray, IntRange

X = InputSpec("x", (2, 3), "float32")
IDS = InputSpec("ids", (50,), "int64")


def test_the_same_seed_gives_the_same_values() -> None:
    first, again, other = (make_inputs([X], seed=s)[0] for s in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    assert first.shape == (2, 3)
    assert first.dtype == np.float32


def test_integers_are_zero_or_one_unless_a_range_is_given() -> None:
    (safe,) = make_inputs([IDS])
    (drawn,) = make_inputs([IDS], [("ids", IntRange(5, 7))])
    assert set(safe) == {0, 1}
    assert set(drawn) == {5, 6, 7}
    assert drawn.dtype == np.int64


def test_a_value_for_one_input_changes_no_other(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3), "float32"))
    drawn = make_inputs([X, IDS])
    given = make_inputs([X, IDS], [("x", tmp_path / "x.npy")])
    assert (given[0] == 1).all()
    assert (given[1] == drawn[1]).all()


def as_npy(array: Any) -> InputArray:
    file = io.BytesIO()
    np.save(file, array)
    return InputArray(file.getvalue())


def test_an_array_is_a_value_as_the_file_of_it_is() -> None:
    (x,) = make_inputs([X], [("x", as_npy(np.ones((2, 3), "float32")))])
    assert (x == 1).all()
    with pytest.raises(TunerError, match="--input x: the array holds int64 2, but the model takes"):
        make_inputs([X], [("x", as_npy(np.ones(2, "int64")))])


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.ones((3, 2), "float32"), "holds float32 3,2, but the model takes float32 2,3"),
        (np.ones((2, 3), "float64"), "holds float64 2,3, but the model takes float32 2,3"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, array: object, says: str) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(TunerError, match=says):
        make_inputs([X], [("x", tmp_path / "x.npy")])


def test_a_file_that_is_missing_or_broken_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_text("no array")
    for name in ("x.npy", "missing.npy"):
        with pytest.raises(TunerError, match=r"--input x: cannot read"):
            make_inputs([X], [("x", tmp_path / name)])


def test_values_for_unknown_inputs_and_ranges_for_floats_are_refused() -> None:
    with pytest.raises(TunerError, match=r"--input y: no such input; the model has x"):
        make_inputs([X], [("y", IntRange(0, 1))])
    with pytest.raises(TunerError, match=r"--input x: it holds float32"):
        make_inputs([X], [("x", IntRange(0, 1))])


def test_narrow_floats_can_be_made() -> None:
    needed_package("ml_dtypes")
    spec = InputSpec("h", (4,), "bfloat16")
    (array,) = make_inputs([spec])
    assert array.dtype.name == "bfloat16"
    (given,) = make_inputs([spec], [("h", as_npy(array))])
    assert (given == array).all()
    with pytest.raises(TunerError, match="holds float16 4"):
        make_inputs([spec], [("h", as_npy(np.ones(4, "float16")))])
