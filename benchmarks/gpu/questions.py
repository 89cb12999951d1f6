"""What only a device can tell, and whoever emulates one must decide on.

Each question is a program like those of instructions, without an expectation: its answer is read
from what the device gave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks.gpu.accumulation import fit
from tests.spaces.emulation.instructions.memory.barriers import called
from tests.spaces.emulation.instructions.products import fragments as f
from tests.spaces.emulation.instructions.program import (
    Array,
    Arrays,
    Program,
    TensorMap,
    kernel,
)
from tests.spaces.emulation.instructions.rounding import BFLOAT, HALF, SINGLE, Format

Answer = Callable[[Arrays, Arrays], dict[str, Any]]
"""From a program's inputs and outputs."""


@dataclass(frozen=True, slots=True)
class Question:
    """A program and how to read its outputs. `kept` says whether they go into the file of arrays."""

    asks: str
    program: Program
    answer: Answer
    kept: bool = True


def _program(name: str, source: str, make: Any, outputs: Arrays, **more: Any) -> Program:
    return Program(
        name=f"ask.{name}",
        section="",
        source=source,
        make=make,
        expect=lambda *_inputs: outputs,
        **more,
    )


# ---- sums


def _mma_source(shape: str, counts: Sequence[int], accumulator: str) -> str:
    na, nb, nc = counts
    numbers = iter(range(nc + na + nb + nc))
    groups = ["{" + ", ".join(f"%{next(numbers)}" for _ in range(n)) + "}" for n in (nc, na, nb, nc)]
    letter = "f" if accumulator == "float" else "r"
    outs = ", ".join(f'"={letter}"(d[t * {nc} + {i}])' for i in range(nc))
    ins = ", ".join(
        f'"{kind}"({array}[t * {n} + {i}])'
        for array, n, kind in (("a", na, "r"), ("b", nb, "r"), ("c", nc, letter))
        for i in range(n)
    )
    body = (
        "  int t = blockIdx.x * 32 + threadIdx.x;\n"
        f'  asm volatile("mma.sync.aligned.{shape} {", ".join(groups)};"\n'
        f"    : {outs} : {ins});"
    )
    parameters = f"const uint32_t* a, const uint32_t* b, const {accumulator}* c, {accumulator}* d"
    return kernel(parameters, body)


@dataclass(frozen=True, slots=True)
class _Sum:
    """One form of mma.sync, and the formats of its factors and its accumulator."""

    shape: str
    depth: int
    a: f.Fragment
    b: f.Fragment
    factors: Format
    bits: type[np.unsignedinteger[Any]]
    accumulator: Format


_SUMS = [
    _Sum("m16n8k16.row.col.f32.f16.f16.f32", 16, f.A_M16K16, f.B_K16N8, HALF, np.uint16, SINGLE),
    _Sum("m16n8k16.row.col.f32.bf16.bf16.f32", 16, f.A_M16K16, f.B_K16N8, BFLOAT, np.uint16, SINGLE),
    _Sum("m16n8k16.row.col.f16.f16.f16.f16", 16, f.A_M16K16, f.B_K16N8, HALF, np.uint16, HALF),
    _Sum("m16n8k8.row.col.f32.f16.f16.f32", 8, f.A_M16K8, f.B_K8N8, HALF, np.uint16, SINGLE),
    _Sum(
        "m16n8k8.row.col.f32.tf32.tf32.f32",
        8,
        f.A_M16K8_TF32,
        f.B_K8N8_TF32,
        SINGLE,
        np.uint32,
        SINGLE,
    ),
]
_PRODUCTS = 4


def _to_bits(values: Array, form: _Sum) -> Array:
    if form.factors is HALF:
        return values.astype(np.float16).view(np.uint16)
    single = values.astype(np.float32).view(np.uint32)
    if form.factors is BFLOAT:
        return (single >> 16).astype(np.uint16)
    return single & np.uint32(0xFFFFE000)


def _spread(rng: np.random.Generator, shape: tuple[int, ...], octaves: int) -> Array:
    """Numbers of both signs whose exponents differ by up to so many."""
    exponents = rng.integers(-octaves, 1, shape)
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(1, 2, shape) * 2.0**exponents


def _sums(form: _Sum) -> Question:
    counts = [
        form.a.elements * form.bits().itemsize // 4,
        form.b.elements * form.bits().itemsize // 4,
        2 if form.accumulator is HALF else 4,
    ]
    single = form.accumulator is SINGLE
    kind: type[np.generic] = np.float32 if single else np.float16
    words: type[np.generic] = np.float32 if single else np.uint32

    def make(rng: np.random.Generator) -> Arrays:
        a, b, c = [], [], []
        for product in range(_PRODUCTS):
            left, right = (
                _to_bits(_spread(rng, shape, 2 + 3 * product), form)
                for shape in ((16, form.depth), (form.depth, 8))
            )
            start = _spread(rng, (16, 8), 6).astype(kind) * kind(4.0)
            a.append(form.a.deal(left).view(np.uint32))
            b.append(form.b.deal(right).view(np.uint32))
            c.append(f.ACCUMULATOR.deal(start).view(words))
        return [np.stack(a), np.stack(b), np.stack(c)]

    def answer(inputs: Arrays, outputs: Arrays) -> dict[str, Any]:
        accumulator: type[np.generic] = np.uint32 if single else np.uint16
        left, right, start, got = (
            np.stack([part.gather(held.view(of).reshape(32, -1), size) for held in array])
            for array, part, of, size in (
                (inputs[0], form.a, form.bits, (16, form.depth)),
                (inputs[1], form.b, form.bits, (form.depth, 8)),
                (inputs[2], f.ACCUMULATOR, accumulator, (16, 8)),
                (outputs[0], f.ACCUMULATOR, accumulator, (16, 8)),
            )
        )
        part = np.s_[:, ::4]  # a quarter of the rows tells enough
        return fit(left[part], right, start[part], got[part], factors=form.factors)

    return Question(
        f"how mma.sync.{form.shape} rounds its sums",
        _program(
            f"sum.{form.shape}",
            _mma_source(form.shape, counts, "float" if single else "uint32_t"),
            make,
            [np.zeros((_PRODUCTS, 32, counts[2]), words)],
            grid=(_PRODUCTS, 1, 1),
        ),
        answer,
    )


# ---- special values


def _special() -> Question:
    """Row r of A against a B of which every column is the same; all of bfloat16."""
    form = _SUMS[1]
    tiny, big, one = 2.0**-100, 2.0**100, 1.0
    nan, inf = float("nan"), float("inf")
    cases: dict[str, tuple[list[float], list[float], float]] = {
        "a subnormal result of normal factors, 2**-135": ([tiny], [2.0**-35], 0.0),
        "a subnormal factor, 2**-133 times 2**100": ([2.0**-133], [big], 0.0),
        "a subnormal accumulator, 2**-140": ([0.0], [one], 2.0**-140),
        "a subnormal accumulator and 1 - 1": ([one, -one], [one, one], 2.0**-140),
        "infinity times zero": ([inf], [0.0], 0.0),
        "infinity minus infinity": ([inf, -inf], [one, one], 0.0),
        "NaN": ([nan], [one], 0.0),
        "2**100 times 2**100": ([big], [big], 0.0),
        "an overflow that cancels: 2**127 + 2**127 - 2**127": (
            [2.0**127, 2.0**127, -(2.0**127)],
            [one, one, one],
            0.0,
        ),
        "the largest float and half of its last place": ([2.0**103], [one], float(np.finfo("f4").max)),
        "-0 and products of -0": ([-0.0], [one], -0.0),
        "1 - 1": ([one, -one], [one, one], 0.0),
        "-1 + 1 and -0": ([-one, one], [one, one], -0.0),
    }

    def make(rng: np.random.Generator) -> Arrays:
        a, b, c = [], [], []
        for left, right, start in cases.values():
            rows, columns = np.zeros((16, 16)), np.zeros((16, 8))
            rows[:, : len(left)] = left
            columns[: len(right)] = np.array(right)[:, None]
            if start == 0 and np.signbit(start):
                rows[:] = np.where(rows == 0, -0.0, rows)
                columns[len(right) :] = 1.0
            a.append(f.A_M16K16.deal(_to_bits(rows, form)).view(np.uint32))
            b.append(f.B_K16N8.deal(_to_bits(columns, form)).view(np.uint32))
            c.append(f.ACCUMULATOR.deal(np.full((16, 8), start, np.float32)))
        return [np.stack(a), np.stack(b), np.stack(c)]

    def answer(_inputs: Arrays, outputs: Arrays) -> dict[str, Any]:
        values = outputs[0][:, 0, 0]
        return {
            name: f"{value!s} (0x{value.view(np.uint32):08x})"
            for name, value in zip(cases, values, strict=True)
        }

    return Question(
        "what mma.sync m16n8k16 of bfloat16 does with special values",
        _program(
            "special.bf16",
            _mma_source(form.shape, (4, 2, 4), "float"),
            make,
            [np.zeros((len(cases), 32, 4), np.float32)],
            grid=(len(cases), 1, 1),
        ),
        answer,
    )


def _low_bits() -> Question:
    """D = A times the identity: what of a float32 the instruction looks at."""
    form = _SUMS[4]

    def make(rng: np.random.Generator) -> Arrays:
        rows = rng.standard_normal((16, 8)).astype(np.float32)
        a = form.a.deal(rows).view(np.uint32)
        b = form.b.deal(np.eye(8, dtype=np.float32)).view(np.uint32)
        return [a, b, np.zeros((32, 4), np.float32)]

    def answer(inputs: Arrays, outputs: Arrays) -> dict[str, Any]:
        given = form.a.gather(inputs[0], (16, 8))
        got = f.ACCUMULATOR.gather(outputs[0].view(np.uint32), (16, 8))
        cut = given & np.uint32(0xFFFFE000)
        away = (given + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
        return {
            "elements": int(got.size),
            "cut to 10 bits": int((got == cut).sum()),
            "rounded to 10 bits": int((got == away).sum()),
            "taken whole": int((got == given).sum()),
        }

    return Question(
        "what mma.sync of tf32 does with the lower 13 bits of its factors",
        _program(
            "tf32.low-bits",
            _mma_source(form.shape, (4, 2, 4), "float"),
            make,
            [np.zeros((32, 4), np.float32)],
        ),
        answer,
    )


def _integer_overflow() -> Question:
    def make(rng: np.random.Generator) -> Arrays:
        ones = np.full((32, 4), 0x7F7F7F7F, np.uint32)
        return [ones, ones[:, :2].copy(), np.full((32, 4), 2**31 - 5, np.uint32)]

    def answer(_inputs: Arrays, outputs: Arrays) -> dict[str, Any]:
        exact = 2**31 - 5 + 32 * 127 * 127
        wrapped = (exact + 2**31) % 2**32 - 2**31
        got = int(outputs[0].view(np.int32)[0, 0])
        return {"got": got, "wraps": got == wrapped, "saturates": got == 2**31 - 1}

    return Question(
        "what mma.sync of s8 does where its sum is too large",
        _program(
            "overflow.s8",
            _mma_source("m16n8k32.row.col.s32.s8.s8.s32", (4, 2, 4), "uint32_t"),
            make,
            [np.zeros((32, 4), np.uint32)],
        ),
        answer,
    )


# ---- memory


def _narrow_box() -> Question:
    """A box whose rows are shorter than the swizzle: what is the distance of two rows?"""
    body = """
  extern __shared__ __align__(1024) uint8_t tile[];
  uint64_t* bar = (uint64_t*)(tile + 1024);
  for (int i = threadIdx.x; i < 1024; i += 32) tile[i] = 0xff;
  if (threadIdx.x == 0) init(bar, 1);
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    arrive_expect_tx(bar, 512);
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];"
      : : "r"((unsigned int)__cvta_generic_to_shared(tile)), "l"(&map), "r"(0), "r"(0),
          "r"((unsigned int)__cvta_generic_to_shared(bar)) : "memory");
  }
  wait(bar, 0);
  for (int i = threadIdx.x; i < 1024; i += 32) out[i] = tile[i];"""

    def make(rng: np.random.Generator) -> Arrays:
        row, byte = np.indices((8, 64))
        return [(16 * row + byte // 4).astype(np.uint8)]

    def answer(_inputs: Arrays, outputs: Arrays) -> dict[str, Any]:
        image = outputs[0]
        first = {int(v): int(np.flatnonzero(image == v)[0]) for v in range(0, 128, 4) if v in image}
        return {"first byte of 16 by row * 4 + chunk": [first.get(v, -1) for v in range(0, 128, 4)]}

    return Question(
        "where a tensor copy with the 128-byte swizzle puts rows of 64 bytes",
        _program(
            "narrow-box",
            kernel(
                "const __grid_constant__ CUtensorMap map, const void*, uint8_t* out",
                body,
                before=f"#include <cuda.h>\n{called(body)}",
            ),
            make,
            [np.zeros(1024, np.uint8)],
            shared_bytes=1032,
            arch="sm_90a",
            tensor_maps=(TensorMap(0, "uint8", (64, 8), (64,), (64, 8), 128),),
        ),
        answer,
    )


def _atomic_subnormals() -> Question:
    body = """
  __shared__ float here[1];
  here[0] = in[0];
  out[0] = in[0];
  out[2] = 0.0f;
  atomicAdd(out, in[0]);
  atomicAdd(here, in[0]);
  out[1] = here[0];
  atomicAdd(out + 2, in[0]);"""

    def answer(inputs: Arrays, outputs: Arrays) -> dict[str, Any]:
        names = ("global, to a subnormal", "shared, to a subnormal", "global, to zero")
        wanted = (2, 2, 1)
        return {
            name: "kept" if value == times * inputs[0][0] else f"{value!s}"
            for name, value, times in zip(names, outputs[0], wanted, strict=True)
        }

    return Question(
        "whether atomicAdd of float keeps subnormal numbers",
        _program(
            "atomic.subnormals",
            kernel("const float* in, float* out", body, threads=1),
            lambda rng: [np.array([2.0**-140], np.float32)],
            [np.zeros(3, np.float32)],
            block=(1, 1, 1),
        ),
        answer,
    )


# ---- functions


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
    _Approximation("rsqrt.approx.f32", _asm("rsqrt.approx.f32"), lambda x: 1 / np.sqrt(x), 1e-6, 1e6),
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
        _program(
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
        _program(
            f"half.{name}",
            kernel("const __half* in, __half* out", body, threads=256, before="#include <cuda_fp16.h>"),
            lambda rng: [np.arange(1 << 16).astype(np.uint16).view(np.float16)],
            [np.zeros(1 << 16, np.float16)],
            grid=(256, 1, 1),
            block=(256, 1, 1),
        ),
        answer,
        kept=False,
    )


@cache
def questions() -> dict[str, Question]:
    """All of them, by name."""
    asked = [
        *(_sums(form) for form in _SUMS),
        _special(),
        _low_bits(),
        _integer_overflow(),
        _narrow_box(),
        _atomic_subnormals(),
        *(_approximation(a) for a in _APPROXIMATIONS),
        *(_of_halves(name) for name in _OF_HALVES),
    ]
    return {question.program.name: question for question in asked}
