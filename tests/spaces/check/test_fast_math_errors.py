"""What kernels that are compiled with CUDA's fast math may be off by, and what they may not.

Kernels are NumPy's here, off by as much as NVIDIA's manuals allow the functions of fast math.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tuner.request.target_text import Arithmetic

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.tvm

N, EPS = 64, 2.0**-23
FAST = {
    "tanh": lambda x: np.tanh(x),
    "sin": lambda x: np.sin(x),
    "cos": lambda x: np.cos(x),
    "tan": lambda x: np.tan(x),
    "exp": lambda x: np.exp(x),
    "log": lambda x: np.log(np.abs(x) + 0.01),
    "pow": lambda x: (np.abs(x) + 0.01) ** 3.5,
    "divide": lambda x: 3 / (np.abs(x) + 0.01),
}
"""Each as a function of float64."""


def off(name: str, x: Array, sign: float) -> Array:
    """What a device may make of a function by the tables of its manuals, the CUDA C++ Programming
    Guide's "Intrinsic Functions" and PTX ISA's "sin" and "cos"."""
    true, size = FAST[name](x), np.abs(x)
    of_sine = np.where(size <= 2 * math.pi, 2**-20.5, 2**-14.7)
    argument = size + 0.01
    error = {
        "tanh": lambda: 2**-10.987 * np.abs(true),
        "sin": lambda: of_sine,
        "cos": lambda: of_sine,
        "exp": lambda: (2 + np.floor(1.173 * size)) * EPS * true,
        "log": lambda: np.where((argument > 0.5) & (argument < 2), 2**-21.41, 3 * EPS * abs(true)),
        "divide": lambda: 2 * EPS * true,
    }
    if name == "tan":
        return (np.sin(x) + sign * of_sine) / (np.cos(x) - sign * of_sine * np.sign(np.tan(x)))
    if name == "pow":  # exp2(y * __log2f(x))
        log2 = np.log2(argument)
        near = (argument > 0.5) & (argument < 2)
        wrong = log2 + sign * np.where(near, 2.0**-22, 2 * EPS * np.abs(log2))
        return np.exp2(3.5 * wrong) * (1 + sign * 2 * EPS)
    return true + sign * error[name]()


def element(name: str, x: Any) -> Any:
    """The same, of an element of a program."""
    from tvm import te, tirx

    def constant(value: float) -> Any:
        return tirx.const(value, "float32")

    shifted = te.abs(x) + constant(0.01)
    if name == "pow":
        return te.power(shifted, constant(3.5))
    if name == "divide":
        return constant(3.0) / shifted
    if name == "log":
        return te.log(shifted)
    return getattr(te, name)(x)


def module(make: Callable[[Any], Any], dtype: str = "float32") -> Any:
    """A program of one tensor."""
    import tvm
    from tvm import te

    a = te.placeholder((N, N), name="A", dtype=dtype)
    out = te.compute((N, N), lambda i, j: make(a[i, j]), name="B")
    return tvm.IRModule({"main": te.create_prim_func([a, out])})


def cases(made: Any, *, fast_math: bool = True) -> Any:
    from spaces.check.reference import reference

    return reference(made, "fast", arithmetic=Arithmetic(fast_math=fast_math)).cases


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("name", FAST)
def test_what_the_manuals_allow_is_allowed_and_little_more(name: str, scale: float) -> None:
    """Numbers are drawn up to some units, and with a scale beyond 2 pi."""
    from tvm import tirx

    for case in cases(module(lambda x: element(name, x * tirx.const(scale, "float32")))):
        x = (case.fresh(0) * np.float32(scale)).astype(np.float64)
        with np.errstate(all="ignore"):
            true = FAST[name](x)
            for sign in (-1.0, 1.0):
                got = np.where(np.abs(true) < 1e38, off(name, x, sign), true)
                assert case.wrong(1, got.astype(np.float32)) is None
                far = true + 40 * np.maximum(np.abs(got - true), EPS * np.abs(true))
                assert case.wrong(1, far.astype(np.float32)) is not None


@pytest.mark.parametrize("name", ["tanh", "tan", "pow", "sin"])
def test_without_fast_math_no_such_error_is_allowed(name: str) -> None:
    """As it was, whatever fast math is allowed: see `test_bounds_without_it_are_as_they_were`."""
    from tvm import tirx

    made = module(lambda x: element(name, x * tirx.const(30.0, "float32")))
    for case in cases(made, fast_math=False):
        x = (case.fresh(0) * np.float32(30)).astype(np.float64)
        with np.errstate(all="ignore"):
            assert case.wrong(1, off(name, x, 1.0).astype(np.float32)) is not None


def test_a_sine_of_a_large_angle_may_be_any_and_nothing_else() -> None:
    from tvm import te, tirx

    for case in cases(module(lambda x: te.sin(x * tirx.const(1e6, "float32")))):
        far = np.abs(case.fresh(0)) > 1e-3
        want = case.outputs[1]
        assert case.wrong(1, np.where(far, -want, want)) is None
        assert case.wrong(1, np.where(far, 4.0, want).astype(np.float32)) is not None


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "sigmoid", "erf"])
def test_what_was_allowed_enough_stays_as_it_was(name: str) -> None:
    from tvm import te

    made = module(lambda x: getattr(te, name)(te.abs(x)))
    for fast, plain in zip(cases(made), cases(made, fast_math=False), strict=True):
        assert fast.bounds[1] == pytest.approx(plain.bounds[1], rel=1e-6, abs=2e-37)


def test_a_number_that_becomes_subnormal_may_be_zero_and_what_follows_from_it() -> None:
    from tvm import tirx

    def scaled(x: Any) -> Any:
        return (
            x
            * tirx.const(1e-30, "float32")
            * tirx.const(1e-9, "float32")
            * tirx.const(1e30, "float32")
        )

    for case, plain in zip(
        cases(module(scaled)), cases(module(scaled), fast_math=False), strict=True
    ):
        want, subnormal = case.outputs[1], np.abs(case.fresh(0)) * 1e-39 < 2.0**-126
        assert np.abs(want[subnormal]).max() > 0
        flushed = np.where(subnormal, np.float32(0), want)
        assert case.wrong(1, flushed) is None
        assert plain.wrong(1, flushed) is not None


def test_a_quotient_by_a_very_large_number_may_be_zero() -> None:
    from tvm import te, tirx

    def divided(x: Any) -> Any:
        one, large = tirx.const(1.0, "float32"), tirx.const(1e38, "float32")
        return large / ((tirx.Min(te.abs(x), one) + one) * large)

    for case in cases(module(divided)):
        want = case.outputs[1]
        assert want.min() > 0.01
        assert case.wrong(1, np.zeros_like(want)) is None
        assert case.wrong(1, want * np.float32(3.5)) is not None


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types_are_computed_as_without_it(dtype: str) -> None:
    from tvm import te

    made = module(lambda x: te.tanh(x) / (te.exp(x) + x), dtype)
    for fast, plain in zip(cases(made), cases(made, fast_math=False), strict=True):
        assert np.array_equal(fast.bounds[1], plain.bounds[1], equal_nan=True)


def test_a_bound_that_nobody_can_follow_knows_fast_math_too() -> None:
    from tvm import te, tirx

    def nested(x: Any) -> Any:
        for _ in range(5):
            x = te.tanh(x + tirx.const(0.1, "float32"))
        return x

    def bent(x: Any) -> Any:
        for _ in range(5):
            x = te.exp(x * tirx.const(-0.1, "float32"))
        return x

    for made, more in ((module(nested), True), (module(bent), False)):
        for fast, plain in zip(cases(made), cases(made, fast_math=False), strict=True):
            assert (fast.bounds[1] > plain.bounds[1] * 10).all() == more
            assert more or np.array_equal(fast.bounds[1], plain.bounds[1])


AS_THEY_WERE = {
    "tanh": "0adc48930d9297a4",
    "sin": "d3c51badabeafa83",
    "cos": "7acd2d4488ca95f4",
    "tan": "1110921623892a97",
    "exp": "4bfd1f131db36204",
    "log": "a409741553822bbe",
    "pow": "06add829f981c18a",
    "divide": "c408603c0c96b165",
}
"""The hash of each program with its bounds, from before there was fast math."""


@pytest.mark.parametrize("name", FAST)
def test_bounds_without_it_are_as_they_were(name: str) -> None:
    from spaces.check.error_bounds import with_bounds
    from spaces.ir import tvm_compat

    made = module(lambda x: element(name, x))
    assert (
        tvm_compat.structural_hash_hex(with_bounds(made["main"], [1]).function)
        == (AS_THEY_WERE[name])
    )


@pytest.mark.parametrize("name", FAST)
def test_some_elements_have_the_bounds_that_all_have(name: str) -> None:
    from spaces.check.choice import reference_of

    made = module(lambda x: element(name, x))
    some = reference_of(made, "fast", quick_steps=0, arithmetic=Arithmetic(fast_math=True))
    for sampled, whole in zip(some.cases, cases(made), strict=True):
        sample = sampled._samples[1]  # type: ignore[union-attr]
        assert sample.bound == pytest.approx(whole.bounds[1][sample.where], rel=0.3, abs=1e-7)
