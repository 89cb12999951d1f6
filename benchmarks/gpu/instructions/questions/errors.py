"""How far functions are from the true value, over a range or over all numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu.instructions.questions.question import Question, ask
from tests.spaces.emulation.instructions.program import Array, Arrays, kernel


@dataclass(frozen=True, slots=True)
class _Approximation:
    """A function of float32 whose greatest error is asked for, between low and high."""

    name: str
    statement: str
    true: Callable[[Array], Array]
    low: float
    high: float
    fast_math: bool = False


def _asm(name: str) -> str:
    return f'asm volatile("{name} %0, %1;" : "=f"(y) : "f"(x))'


_APPROXIMATIONS = [
    _Approximation("tanh.approx.f32", _asm("tanh.approx.f32"), np.tanh, -12, 12),
    _Approximation("ex2.approx.f32", _asm("ex2.approx.f32"), np.exp2, -120, 120),
    _Approximation("ex2.approx.ftz.f32", _asm("ex2.approx.ftz.f32"), np.exp2, -120, 120),
    _Approximation("lg2.approx.f32", _asm("lg2.approx.f32"), np.log2, 1e-6, 1e6),
    _Approximation(
        "rsqrt.approx.f32", _asm("rsqrt.approx.f32"), lambda x: 1 / np.sqrt(x), 1e-6, 1e6
    ),
    _Approximation("rcp.approx.f32", _asm("rcp.approx.f32"), lambda x: 1 / x, 1e-6, 1e6),
    _Approximation("sin.approx.f32", _asm("sin.approx.f32"), np.sin, -3.2, 3.2),
    _Approximation("tanhf", "y = tanhf(x)", np.tanh, -12, 12),
    _Approximation("expf", "y = expf(x)", np.exp, -80, 80),
    _Approximation("powf", "y = powf(x, 3.5f)", lambda x: x**3.5, 1e-3, 1e3),
    _Approximation("tanhf.fast", "y = tanhf(x)", np.tanh, -12, 12, True),
    _Approximation("expf.fast", "y = expf(x)", np.exp, -80, 80, True),
    _Approximation("logf.fast", "y = logf(x)", np.log, 1e-3, 1e3, True),
    _Approximation("sinf.fast", "y = sinf(x)", np.sin, -20, 20, True),
    _Approximation("powf.fast", "y = powf(x, 3.5f)", lambda x: x**3.5, 1e-3, 1e3, True),
    _Approximation("division.fast", "y = 3.0f / x", lambda x: 3 / x, 1e-6, 1e6, True),
]
_POINTS = 1 << 17


def _approximation(asked: _Approximation) -> Question:
    body = f"""
  int i = blockIdx.x * 256 + threadIdx.x;
  float x = in[i], y;
  {asked.statement};
  out[i] = y;"""

    def make(rng: np.random.Generator) -> Arrays:
        if asked.low > 0:
            return [np.geomspace(asked.low, asked.high, _POINTS).astype(np.float32)]
        return [np.linspace(asked.low, asked.high, _POINTS).astype(np.float32)]

    def answer(inputs: Arrays, outputs: Arrays) -> dict[str, Any]:
        x, got = inputs[0].astype(np.float64), outputs[0].astype(np.float64)
        true = asked.true(x)
        error = np.abs(got - true)
        unit = np.spacing(np.abs(true).astype(np.float32)).astype(np.float64)
        share = error / np.where(true == 0, 1, np.abs(true))
        return {
            "greatest ulps": round(float((error / unit).max()), 2),
            "greatest relative": float(share.max()),
            "greatest absolute": float(error.max()),
            "at": float(x[np.argmax(error / unit)]),
        }

    return Question(
        f"the error of {asked.name} between {asked.low:g} and {asked.high:g}",
        ask(
            f"error.{asked.name}",
            kernel("const float* in, float* out", body, threads=256),
            make,
            [np.zeros(_POINTS, np.float32)],
            grid=(_POINTS // 256, 1, 1),
            block=(256, 1, 1),
            fast_math=asked.fast_math,
        ),
        answer,
        kept=False,
    )


_OF_HALVES: dict[str, tuple[str, Callable[[Array], Array]]] = {
    name: (f"{name}(x)", true)
    for name, true in (
        ("hexp", np.exp),
        ("hexp2", np.exp2),
        ("hlog", np.log),
        ("hlog2", np.log2),
        ("hsin", np.sin),
        ("hcos", np.cos),
        ("hsqrt", np.sqrt),
        ("hrsqrt", lambda x: 1 / np.sqrt(x)),
        ("hrcp", lambda x: 1 / x),
        ("htanh", np.tanh),
    )
}
_OF_HALVES["division"] = ("__hdiv(__float2half_rn(3.0f), x)", lambda x: 3 / x)


def _of_halves(name: str) -> Question:
    """All numbers of float16; the results of few are not the nearest one."""
    call, true = _OF_HALVES[name]
    body = f"""
  int i = blockIdx.x * 256 + threadIdx.x;
  __half x = in[i];
  out[i] = {call};"""

    def answer(inputs: Arrays, outputs: Arrays) -> dict[str, Any]:
        x, got = inputs[0].astype(np.float64), outputs[0]
        with np.errstate(all="ignore"):
            want = true(x).astype(np.float16)
        order = [
            np.where(v.view(np.int16) < 0, -(v.view(np.int16) & 0x7FFF), v.view(np.int16))
            for v in (got, want)
        ]
        apart = np.abs(order[0].astype(int) - order[1])
        apart[np.isnan(got) & np.isnan(want)] = 0
        return {
            "not the nearest": int((apart > 0).sum()),
            "greatest distance": int(apart.max()),
            "at": float(x[np.argmax(apart)]),
        }

    return Question(
        f"how far {name} of float16 is from the nearest number",
        ask(
            f"half.{name}",
            kernel(
                "const __half* in, __half* out", body, threads=256, before="#include <cuda_fp16.h>"
            ),
            lambda rng: [np.arange(1 << 16).astype(np.uint16).view(np.float16)],
            [np.zeros(1 << 16, np.float16)],
            grid=(256, 1, 1),
            block=(256, 1, 1),
        ),
        answer,
        kept=False,
    )


def questions() -> list[Question]:
    """All of them."""
    return [*map(_approximation, _APPROXIMATIONS), *map(_of_halves, _OF_HALVES)]
