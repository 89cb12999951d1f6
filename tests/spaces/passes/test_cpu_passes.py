"""What is done to programs right before they are compiled for a CPU changes no result."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spaces.passes.cpu_passes import before_compile

pytestmark = pytest.mark.tvm

Array = np.ndarray[Any, Any]
_ERF = np.vectorize(math.erf, otypes=[np.float64])
FUNCTIONS: dict[str, tuple[Callable[[Array], Array], float]] = {
    "exp": (np.exp, 2),
    "tanh": (np.tanh, 4),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 4),
    "erf": (_ERF, 4),
}
EXTREMES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 88.72, 88.73, -87.3, -104, 1e4, -1e4, 3e38, -3e38]


def applied(name: str, x: Array, *, exponent: float | None = None) -> tuple[Array, str]:
    """What a compiled program makes of a vector, and its assembly."""
    import tvm
    from tvm import te, tirx

    from spaces.targets.target import parse_target, resolve_target

    given = te.placeholder(x.shape, dtype=str(x.dtype), name="x")
    function = getattr(tirx, name)
    more = () if exponent is None else (tirx.const(exponent, str(x.dtype)),)
    made = te.compute(x.shape, lambda i: function(given[i], *more), name="y")
    program = te.create_prim_func([given, made]).with_attr("global_symbol", "main")
    library = tvm.compile(
        before_compile(tvm.IRModule({"main": program})),
        target=parse_target(resolve_target("llvm", cores=1)),
    )
    tensors = [tvm.runtime.tensor(x), tvm.runtime.tensor(np.zeros_like(x))]
    library["main"](*tensors)
    result: Array = tensors[1].numpy()
    return result, str(library.mod.inspect_source("asm"))


@pytest.mark.each_value
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize("limit", [1e-3, 1.0, 10.0, 80.0])
def test_within_a_few_units_in_the_last_place(name: str, limit: float) -> None:
    exact, units = FUNCTIONS[name]
    x = np.random.default_rng(3).uniform(-limit, limit, 20000).astype("float32")
    got, assembly = applied(name, x)
    want = exact(x.astype("float64"))
    normal = np.abs(want) > 1.2e-38
    error = np.abs(got - want)[normal] / np.spacing(np.abs(want[normal]).astype("float32"))
    assert error.max() <= units
    assert f"{name}f" not in assembly


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_extremes(name: str) -> None:
    x = np.array(EXTREMES, dtype="float32")
    got, _ = applied(name, x)
    with np.errstate(over="ignore"):
        want = FUNCTIONS[name][0](x.astype("float64")).astype("float32")
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1.2e-38)


def test_half_precision_goes_through_single() -> None:
    x = np.linspace(-8, 8, 200).astype("float16")
    got, _ = applied("exp", x)
    np.testing.assert_allclose(got, np.exp(x.astype("float64")), rtol=1e-3)


def test_double_precision_stays_with_the_library() -> None:
    x = np.linspace(-8, 8, 200)
    got, assembly = applied("exp", x)
    np.testing.assert_allclose(got, np.exp(x), rtol=1e-15)
    assert "exp" in assembly


@pytest.mark.parametrize("exponent", [0.5, 0.75, 2.0, -1.25, 3.0])
def test_powers_by_quarters(exponent: float) -> None:
    x = np.random.default_rng(4).uniform(0.01, 50, 1000).astype("float32")
    got, assembly = applied("power", x, exponent=exponent)
    np.testing.assert_allclose(got, x.astype("float64") ** exponent, rtol=1e-6)
    assert "powf" not in assembly


def test_other_powers_stay() -> None:
    x = np.random.default_rng(5).uniform(0.01, 50, 100).astype("float32")
    got, _ = applied("power", x, exponent=0.3)
    np.testing.assert_allclose(got, x.astype("float64") ** 0.3, rtol=1e-5)


def test_tensors_of_wide_integers_stay_wide() -> None:
    x = np.array([2**40, -(2**50), 3], dtype="int64")
    got, _ = applied("abs", x)
    np.testing.assert_array_equal(got, np.abs(x))
