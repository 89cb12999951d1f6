"""Functions of float32 with the errors that the manual allows, plain and with --use_fast_math.

References are float64's. Bounds are those of the manual's tables; where it gives a bound for a
range only, numbers come from that range. No result is subnormal: with fast math those are zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.spaces.emulation.instructions.program import Array, Arrays, Program, kernel

_STANDARD = "CUDA C++ Programming Guide 13.0, Standard Functions, single precision"
_FAST = "CUDA C++ Programming Guide 13.0, Intrinsic Functions, single precision"
_PTX = "PTX ISA 9.1, 9.7.3 Floating Point Instructions: {}"
_COUNT = 1024

Bound = Callable[[Array, Array], Array]
"""The greatest absolute error, from numbers and results."""


@dataclass(frozen=True, slots=True)
class _Function:
    """A function of one float. `call` is C of `x`; numbers are drawn from low to high."""

    name: str
    call: str
    true: Callable[[Array], Array]
    low: float
    high: float
    bound: Bound
    section: str = _STANDARD
    fast_math: bool = False


def ulp(values: Array) -> Array:
    """The distance of float32's numbers at these values."""
    return np.spacing(np.abs(values).astype(np.float32)).astype(np.float64)


def ulps(count: float) -> Bound:
    """So many units in the last place; half a unit more, since the true result is not rounded."""
    return lambda _x, y: (count + 0.5) * ulp(y)


def absolute(error: float) -> Bound:
    """The same everywhere, and what rounding to float32 adds."""
    return lambda _x, y: error + 0.5 * ulp(y)


def relative(error: float) -> Bound:
    """A share of the result, and what rounding to float32 adds."""
    return lambda _x, y: error * np.abs(y) + 0.5 * ulp(y)


def _exp_fast(x: Array, y: Array) -> Array:
    return (2 + np.floor(np.abs(1.173 * x)) + 0.5) * ulp(y)


def _erf(x: Array) -> Array:
    return np.array([math.erf(float(v)) for v in x])


_PLAIN = [
    _Function("expf", "expf(x)", np.exp, -80, 80, ulps(1)),
    _Function("exp2f", "exp2f(x)", np.exp2, -120, 120, ulps(2)),
    _Function("logf", "logf(x)", np.log, 1e-3, 1e3, ulps(1)),
    _Function("log2f", "log2f(x)", np.log2, 1e-3, 1e3, ulps(1)),
    _Function("sinf", "sinf(x)", np.sin, -20, 20, ulps(2)),
    _Function("cosf", "cosf(x)", np.cos, -20, 20, ulps(2)),
    _Function("tanhf", "tanhf(x)", np.tanh, -10, 10, ulps(2)),
    _Function("erff", "erff(x)", _erf, -4, 4, ulps(2)),
    _Function(
        "powf", "powf(fabsf(x), 1.7f)", lambda x: np.abs(x) ** np.float32(1.7), 0.01, 50, ulps(4)
    ),
    _Function("sqrtf", "sqrtf(x)", np.sqrt, 1e-6, 1e6, ulps(0)),
    _Function("rsqrtf", "rsqrtf(x)", lambda x: 1 / np.sqrt(x), 1e-6, 1e6, ulps(2)),
    _Function("1/x", "1.0f / x", lambda x: 1 / x, 1e-6, 1e6, ulps(0)),
]

_INTRINSICS = [
    _Function("__expf", "__expf(x)", np.exp, -80, 80, _exp_fast, _FAST),
    _Function("__logf", "__logf(x)", np.log, 0.5, 2, absolute(2**-21.41), _FAST),
    _Function("__logf.far", "__logf(x)", np.log, 3, 1e3, ulps(3), _FAST),
    _Function("__log2f", "__log2f(x)", np.log2, 0.5, 2, absolute(2**-22), _FAST),
    _Function("__sinf", "__sinf(x)", np.sin, -3.1415925, 3.1415925, absolute(2**-21.41), _FAST),
    _Function("__cosf", "__cosf(x)", np.cos, -3.1415925, 3.1415925, absolute(2**-21.19), _FAST),
    _Function("__fdividef", "__fdividef(3.0f, x)", lambda x: 3 / x, 1e-3, 1e3, ulps(2), _FAST),
    _Function("__frcp_rn", "__frcp_rn(x)", lambda x: 1 / x, 1e-3, 1e3, ulps(0), _FAST),
    _Function("__frsqrt_rn", "__frsqrt_rn(x)", lambda x: 1 / np.sqrt(x), 1e-3, 1e3, ulps(0), _FAST),
]

_WITH_FLAG = [
    _Function("expf", "expf(x)", np.exp, -80, 80, _exp_fast, _FAST, True),
    _Function("logf", "logf(x)", np.log, 0.5, 2, absolute(2**-21.41), _FAST, True),
    _Function("sinf", "sinf(x)", np.sin, -3.1415925, 3.1415925, absolute(2**-21.41), _FAST, True),
    _Function("cosf", "cosf(x)", np.cos, -3.1415925, 3.1415925, absolute(2**-21.19), _FAST, True),
    _Function("tanhf", "tanhf(x)", np.tanh, -10, 10, relative(2**-10.987), _FAST, True),
    _Function("division", "3.0f / x", lambda x: 3 / x, 1e-3, 1e3, ulps(2), _FAST, True),
    _Function("sqrtf", "sqrtf(x)", np.sqrt, 1e-3, 1e3, ulps(3), _FAST, True),
]


def _asm(instruction: str) -> str:
    return f'y; asm volatile("{instruction} %0, %1;" : "=f"(y) : "f"(x))'


_INSTRUCTIONS = [
    _Function(name, _asm(name), true, low, high, bound, _PTX.format(name.split(".")[0]))
    for name, true, low, high, bound in (
        ("ex2.approx.ftz.f32", np.exp2, -120.0, 120.0, ulps(2)),
        ("lg2.approx.f32", np.log2, 0.5, 2.0, absolute(2**-22)),
        ("tanh.approx.f32", np.tanh, -10.0, 10.0, relative(2**-11)),
        ("rcp.approx.ftz.f32", lambda x: 1 / x, 1e-3, 1e3, ulps(1)),
        ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x), 1e-3, 1e3, relative(2**-22.9)),
        ("sqrt.approx.f32", np.sqrt, 1e-3, 1e3, relative(2**-23 * 1.5)),
        ("sin.approx.f32", np.sin, -3.1415925, 3.1415925, absolute(2**-20.5)),
        ("cos.approx.f32", np.cos, -3.1415925, 3.1415925, absolute(2**-20.5)),
    )
]


def _program(function: _Function) -> Program:
    body = f"""
  int i = blockIdx.x * 128 + threadIdx.x;
  float x = in[i];
  out[i] = {function.call};"""
    if function.call.startswith("y;"):
        asm = function.call.removeprefix("y; ")
        body = body.replace(f"out[i] = {function.call};", f"float y;\n  {asm};\n  out[i] = y;")

    def make(rng: np.random.Generator) -> Arrays:
        low, high = function.low, function.high
        if low > 0:
            return [np.exp(rng.uniform(np.log(low), np.log(high), _COUNT)).astype(np.float32)]
        near_zero = rng.uniform(low, high, _COUNT) * 2.0 ** -rng.integers(0, 12, _COUNT)
        return [near_zero.astype(np.float32)]

    def expect(x: Array) -> Arrays:
        return [function.true(x.astype(np.float64)).astype(np.float32)]

    def allow(x: Array) -> Arrays:
        return [function.bound(x, function.true(x.astype(np.float64)))]

    return Program(
        name=f"{function.name}{'.fast-math' if function.fast_math else ''}",
        section=function.section,
        source=kernel("const float* in, float* out", body, threads=128),
        make=make,
        expect=expect,
        grid=(_COUNT // 128, 1, 1),
        block=(128, 1, 1),
        fast_math=function.fast_math,
        allow=allow,
    )


def programs() -> list[Program]:
    """All of them."""
    return [_program(f) for f in (*_PLAIN, *_INTRINSICS, *_WITH_FLAG, *_INSTRUCTIONS)]
