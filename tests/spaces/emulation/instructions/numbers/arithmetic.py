"""Arithmetic of float16, bfloat16 and float32: each result is the exact one, rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from tests.spaces.emulation.instructions.numbers.samples import bfloats, halves
from tests.spaces.emulation.instructions.program import Array, Arrays, Program, kernel
from tests.spaces.emulation.instructions.rounding import (
    BFLOAT,
    HALF,
    NAN,
    SINGLE,
    Format,
    is_minus,
    map_bits,
    round_to,
    value_of,
)

_SECTION = (
    "CUDA Math API 13.0, {} Precision Intrinsics (IEEE 754: rounded to nearest, ties to even)"
)
_HEADERS = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>"
_COUNT = 512

Operation = Callable[[Format, list[int]], int]
"""From the bits of the operands, those of the result."""


def _rounded(exact: Callable[..., Fraction], special: Callable[..., float]) -> Operation:
    """The exact value rounded; `special` works on floats, where an operand is not finite."""

    def apply(format: Format, operands: list[int]) -> int:
        values = [value_of(bits, format) for bits in operands]
        floats = [float(v) for v in values]
        if all(isinstance(v, Fraction) for v in values):
            value = exact(*values)
            if value:
                return round_to(value, format)
            # The sign of a zero is that of IEEE's arithmetic, which Python's floats have too.
            signed = [
                math.copysign(0.0, -1.0 if is_minus(b, format) else 1.0) if v == 0 else v
                for b, v in zip(operands, floats, strict=True)
            ]
            zero = special(*[np.sign(v) if v else v for v in signed])
            return int(math.copysign(1, zero) < 0) << (format.bits - 1)
        return _of_special(special(*floats), format)

    return apply


def _of_special(value: float, format: Format) -> int:
    if math.isnan(value):
        return NAN[format]
    assert math.isinf(value)
    return format.infinity | (int(value < 0) << (format.bits - 1))


def _chosen(greater: bool) -> Operation:
    """The greater or the smaller one; the number where the other is NaN; -0 is below +0."""

    def apply(format: Format, operands: list[int]) -> int:
        values = [(float(value_of(b, format)), not is_minus(b, format), b) for b in operands]
        numbers = [v for v in values if not math.isnan(v[0])]
        if not numbers:
            return NAN[format]
        return (max if greater else min)(numbers)[2]

    return apply


def _flipped(format: Format, operands: list[int]) -> int:
    return operands[0] ^ (1 << (format.bits - 1))


_BINARY: dict[str, Operation] = {
    "add": _rounded(lambda a, b: a + b, lambda a, b: a + b),
    "sub": _rounded(lambda a, b: a - b, lambda a, b: a - b),
    "mul": _rounded(lambda a, b: a * b, lambda a, b: a * b),
    "max": _chosen(greater=True),
    "min": _chosen(greater=False),
}


def _fma(a: float, b: float, c: float) -> float:
    return a * b + c


_FMA: Operation = _rounded(lambda a, b, c: a * b + c, _fma)


def _narrow(name: str, format: Format, operation: Operation, operands: int, call: str) -> Program:
    """`call` is C, of a, b and c."""
    half = format is HALF
    kind, draw = ("__half", halves) if half else ("__nv_bfloat16", bfloats)
    names = "abc"[:operands]
    loads = "\n".join(f"  {kind} {n} = {n}s[i];" for n in names)
    parameters = ", ".join(f"const {kind}* {n}s" for n in names)

    def make(rng: np.random.Generator) -> Arrays:
        drawn = [draw(rng, _COUNT) for _ in range(operands)]
        if operation is _flipped:  # of a NaN nothing is defined
            nan = (drawn[0] & 0x7FFF) > format.infinity
            drawn[0] = np.where(nan, np.uint16(format.infinity), drawn[0])
        return drawn

    def expect(*given: Array) -> Arrays:
        bits = map_bits(lambda *row: operation(format, list(row)), *given)
        return [np.array(bits, np.uint16)]

    return Program(
        name=name,
        section=_SECTION.format("Half" if half else "Bfloat16"),
        source=kernel(
            f"{parameters}, {kind}* out",
            f"  int i = blockIdx.x * 128 + threadIdx.x;\n{loads}\n  out[i] = {call};",
            threads=128,
            before=_HEADERS,
        ),
        make=make,
        expect=expect,
        grid=(_COUNT // 128, 1, 1),
        block=(128, 1, 1),
    )


def _of_pairs(name: str, format: Format, operation: Operation, operands: int) -> Program:
    """The form for two at once: the same for each half."""
    single = _narrow(f"{name}.{format_name(format)}2", format, operation, operands, "")
    kind = "__half2" if format is HALF else "__nv_bfloat162"
    names = [f"{n}s[i]" for n in "abc"[:operands]]
    parameters = ", ".join(f"const {kind}* {n}s" for n in "abc"[:operands])
    body = f"  int i = blockIdx.x * 128 + threadIdx.x;\n  out[i] = {name}({', '.join(names)});"
    return Program(
        name=single.name,
        section=single.section,
        source=kernel(f"{parameters}, {kind}* out", body, threads=128, before=_HEADERS),
        make=single.make,
        expect=single.expect,
        grid=(_COUNT // 256, 1, 1),
        block=(128, 1, 1),
    )


def format_name(format: Format) -> str:
    """As CUDA calls it, in short."""
    return {HALF: "half", BFLOAT: "bfloat16", SINGLE: "float"}[format]


def _narrow_all(format: Format) -> list[Program]:
    name = format_name(format)
    signs = {"add": "a + b", "sub": "a - b", "mul": "a * b"}
    return [
        *(
            _narrow(f"__h{op}.{name}", format, operation, 2, f"__h{op}(a, b)")
            for op, operation in _BINARY.items()
        ),
        *(_narrow(f"{name}.{op}", format, _BINARY[op], 2, sign) for op, sign in signs.items()),
        _narrow(f"__hfma.{name}", format, _FMA, 3, "__hfma(a, b, c)"),
        _narrow(f"__hneg.{name}", format, _flipped, 1, "__hneg(a)"),
        *(_of_pairs(f"__h{op}2", format, _BINARY[op], 2) for op in ("add", "sub", "mul")),
        _of_pairs("__hfma2", format, _FMA, 3),
    ]


_COMPARED = {"__heq": "==", "__hne": "!=", "__hlt": "<", "__hle": "<=", "__hgt": ">", "__hge": ">="}


def _comparisons(format: Format) -> Program:
    """All six, a bit each; with NaN they are false, also != (its form for unordered is __hneu)."""
    half = format is HALF
    kind, draw = ("__half", halves) if half else ("__nv_bfloat16", bfloats)
    bits = " | ".join(f"({name}(a, b) << {i})" for i, name in enumerate(_COMPARED))
    body = f"""
  int i = blockIdx.x * 128 + threadIdx.x;
  {kind} a = as[i], b = bs[i];
  out[i] = {bits} | (__hisnan(a) << 6) | ((__hisinf(a) != 0) << 7);"""

    def answers(x: int, y: int) -> int:
        a, b = float(value_of(x, format)), float(value_of(y, format))
        ordered = not (math.isnan(a) or math.isnan(b))
        asked = [a == b, ordered and a != b, a < b, a <= b, a > b, a >= b]
        return sum(int(yes) << i for i, yes in enumerate([*asked, math.isnan(a), math.isinf(a)]))

    return Program(
        name=f"compare.{format_name(format)}",
        section=_SECTION.format("Half" if half else "Bfloat16"),
        source=kernel(
            f"const {kind}* as, const {kind}* bs, int* out", body, threads=128, before=_HEADERS
        ),
        make=lambda rng: [draw(rng, _COUNT), draw(rng, _COUNT)],
        expect=lambda a, b: [np.array(map_bits(answers, a, b), np.int32)],
        grid=(_COUNT // 128, 1, 1),
        block=(128, 1, 1),
    )


def _singles(name: str, call: str, operation: Operation, operands: int) -> Program:
    """Of float32, in full: nothing is flushed to zero without --use_fast_math."""
    names = "abc"[:operands]
    parameters = ", ".join(f"const float* {n}s" for n in names)
    loads = ", ".join(f"{n} = {n}s[i]" for n in names)

    def make(rng: np.random.Generator) -> Arrays:
        def draw() -> Array:
            # Exponents near each other, so that sums are rounded, and small enough to be subnormal.
            bits = rng.integers(0, 1 << 32, _COUNT, np.uint32)
            low = (bits & np.uint32(0x83FFFFFF)) | np.uint32(0x3E000000)
            tiny = bits & np.uint32(0x81FFFFFF)
            choice = rng.integers(0, 4, _COUNT)
            return np.select([choice == 0, choice == 1], [bits, tiny], low).view(np.float32)

        return [draw() for _ in range(operands)]

    def expect(*given: Array) -> Arrays:
        bits = map_bits(lambda *row: operation(SINGLE, list(row)), *given)
        return [np.array(bits, np.uint32).view(np.float32)]

    return Program(
        name=name,
        section="CUDA C++ Programming Guide 13.0, Standard Functions (error of 0 ulp)",
        source=kernel(
            f"{parameters}, float* out",
            f"  int i = blockIdx.x * 128 + threadIdx.x;\n  float {loads};\n  out[i] = {call};",
            threads=128,
        ),
        make=make,
        expect=expect,
        grid=(_COUNT // 128, 1, 1),
        block=(128, 1, 1),
    )


def _quotient(format: Format, operands: list[int]) -> int:
    a, b = (value_of(bits, format) for bits in operands)
    sign = (operands[0] ^ operands[1]) >> (format.bits - 1)
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        if b == 0:
            return NAN[format] if a == 0 else format.infinity | sign << (format.bits - 1)
        return round_to(a / b, format, minus_zero=bool(sign))
    if math.isnan(a) or math.isnan(b) or (math.isinf(a) and math.isinf(b)):
        return NAN[format]
    return (format.infinity if math.isinf(a) else 0) | sign << (format.bits - 1)


def programs() -> list[Program]:
    """All of them."""
    return [
        *_narrow_all(HALF),
        *_narrow_all(BFLOAT),
        _comparisons(HALF),
        _comparisons(BFLOAT),
        _singles("float.add", "a + b", _BINARY["add"], 2),
        _singles("float.mul", "a * b", _BINARY["mul"], 2),
        _singles("float.div", "a / b", _quotient, 2),
        _singles("fmaf", "fmaf(a, b, c)", _FMA, 3),
        _singles("float.contracted", "a * b + c", _FMA, 3),
        _singles("fmaxf", "fmaxf(a, b)", _BINARY["max"], 2),
        _singles("fminf", "fminf(a, b)", _BINARY["min"], 2),
    ]
