"""What programs are run on: whole ranges and their edges, but nothing they must not be run on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spaces.check.draws import arguments, draw, ranges, thresholds_of

pytestmark = pytest.mark.tvm

Array = np.ndarray[Any, Any]


def drawn(
    make: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float32"
) -> tuple[list[Array], list[Array]]:
    """Both draws of a program's parameters, of the first ranges there are."""
    from tvm import te

    given = [te.placeholder(shape, dtype, name=f"x{i}") for i, shape in enumerate(shapes)]
    function = te.create_prim_func([*given, make(*given)])
    args, thresholds = arguments(function), thresholds_of(function)
    wide, moderate = (
        draw(args, f"seed/{i}", tried[0], thresholds) for i, tried in enumerate(ranges(function))
    )
    return wide, moderate


def elementwise(compute: Callable[..., Any]) -> Callable[..., Any]:
    """A program of one element of each tensor at a time."""
    from tvm import te

    return lambda *given: te.compute(given[0].shape, lambda *at: compute(*(x(*at) for x in given)))


@pytest.mark.parametrize(("dtype", "low", "high"), [("uint8", 0, 255), ("int8", -128, 127)])
def test_bytes_are_of_their_whole_type(dtype: str, low: int, high: int) -> None:
    (wide, *_), (moderate, *_) = drawn(elementwise(lambda x: x), (9, 20), dtype=dtype)
    assert (wide.min(), wide.max()) == (low, high)
    assert wide.std() > 60
    assert moderate.std() < 40
    assert {low, 0, high} <= set(moderate.reshape(-1).tolist())


def test_floats_cross_what_the_program_clips_at_and_meet_it() -> None:
    from tvm import topi

    (wide, *_), (moderate, *_) = drawn(lambda x: topi.clip(x, -3.0, 11.0), (16, 16))
    assert (wide > 11).sum() > 16
    assert (wide < -3).sum() > 16
    assert np.abs(moderate[np.abs(moderate) < 2]).max() <= 1
    assert {-3.0, 11.0, 0.0} <= set(wide.reshape(-1).tolist())
    assert np.signbit(wide[wide == 0]).any()
    assert np.abs(wide).max() > 1000


def test_products_of_scaled_values_are_not_all_clipped() -> None:
    from tvm import tirx

    scale = tirx.const(1e6, "float32")
    make = elementwise(lambda x: tirx.Min(x * tirx.const(3.0, "float32"), scale))
    (wide, *_), _ = drawn(make, (16, 16))
    assert np.median(np.abs(wide)) < 10


def test_what_is_divided_by_or_under_a_root_is_positive_and_nothing_else() -> None:
    from tvm import tirx

    make = elementwise(lambda x, y, z, w: x / y + tirx.sqrt(z + 1.0) - tirx.pow(w, 2.0))
    for x, y, z, w, _ in drawn(make, *[(8, 8)] * 4):
        assert y.min() > 0
        assert z.min() > 0
        assert x.min() < 0
        assert w.min() < 0


def test_integers_that_are_divided_by_are_positive() -> None:
    from tvm import tirx

    for x, y, _ in drawn(elementwise(tirx.floordiv), (8, 8), (8, 8), dtype="int32"):
        assert x.min() < 0
        assert y.min() > 0


@pytest.mark.parametrize("bits", [32, 64])
def test_wide_integers_do_not_overflow(bits: int) -> None:
    """Neither what is added up nor what is multiplied: for signed ones that is undefined."""
    from tvm import te, topi

    a = (20, 50), (50, 30)
    for x, y, _ in drawn(topi.matmul, *a, dtype=f"int{bits}"):
        exact = np.abs(x.astype(object)) @ np.abs(y.astype(object))
        assert exact.max() < 2 ** (bits - 1)
    step = te.reduce_axis((0, 50), "k")

    def total(x: Any) -> Any:
        return te.compute((20,), lambda i: te.sum(x[i, step], step))

    (x, *_), _ = drawn(total, (20, 50), dtype=f"int{bits}")
    assert np.abs(x.astype(object)).sum(1).max() < 2 ** (bits - 1)
    assert np.abs(x.astype(object)).max() > 2 ** (bits - 12)


def test_indices_stay_inside_however_they_get_there() -> None:
    from tvm import te

    table, where = te.placeholder((7, 4), name="table"), te.placeholder((60,), "int64", "where")
    narrow = te.compute(where.shape, lambda i: where[i].astype("int32"), name="narrow")
    out = te.compute((60, 4), lambda i, j: table[narrow[i], j], name="taken")
    function = te.create_prim_func([table, where, out])
    args = arguments(function)
    for tried in ranges(function):
        _, indices, _ = draw(args, "seed", tried[0])
        assert (indices.min(), indices.max()) == (0, 6)


def test_what_chooses_a_matrix_for_each_row_is_sorted_and_once_nearly() -> None:
    from tvm import te

    x, w = te.placeholder((200, 4), name="x"), te.placeholder((7, 4, 3), name="w")
    chosen, terms = (te.placeholder((size,), "int32", name=n) for size, n in ((200, "c"), (4, "t")))
    r = te.reduce_axis((0, 4), "r")
    out = te.compute((200, 3), lambda i, j: te.sum(x[i, terms[r]] * w[chosen[i], r, j], r))
    function = te.create_prim_func([x, w, chosen, terms, out])
    args = arguments(function)
    assert [arg.sorted for arg in args] == [False, False, True, False, False]
    wide, moderate = (draw(args, "seed", tried[0])[2] for tried in ranges(function))
    assert (np.diff(moderate) >= 0).all()
    assert set(moderate.tolist()) == set(range(7))
    assert 0 < (np.diff(wide) < 0).sum() < 100


def test_the_same_seed_draws_the_same_and_a_scalar_is_one() -> None:
    make = elementwise(lambda x: x + 1)
    for one, two in zip(drawn(make, (5, 5)), drawn(make, (5, 5)), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    (scalar, *_), _ = drawn(elementwise(lambda x: x), ())
    assert scalar.shape == ()


@pytest.mark.parametrize(("dtype", "most"), [("float8_e4m3fn", 448), ("float8_e5m2", 57344)])
def test_floats_of_8_bits_are_none_that_their_type_lacks(dtype: str, most: float) -> None:
    from tvm import tirx

    clipped = elementwise(lambda x: tirx.min(x.astype("float32"), tirx.const(1e5, "float32")))
    (wide, *_), (moderate, *_) = drawn(clipped, (9, 20), dtype=dtype)
    real = wide.astype(np.float32)
    assert (real.min(), real.max()) == (-most, most)
    assert np.abs(moderate.astype(np.float32)).max() <= 1
