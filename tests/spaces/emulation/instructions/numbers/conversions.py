"""Conversions between float32, float16, bfloat16, tf32 and integers, in all rounding directions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from tests.spaces.emulation.instructions.numbers.samples import halves, singles_near
from tests.spaces.emulation.instructions.program import Array, Arrays, Program, kernel
from tests.spaces.emulation.instructions.rounding import (
    BFLOAT,
    HALF,
    SINGLE,
    Format,
    Mode,
    convert,
    is_minus,
    map_bits,
    round_to,
    value_of,
)

_SECTION = "CUDA Math API 13.0, {} Conversion and Data Movement; PTX ISA 9.1, 9.7.9.21 cvt"
_HALF, _BFLOAT = _SECTION.format("Half Precision"), _SECTION.format("Bfloat16 Precision")
_HEADERS = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>"

_MODES: tuple[Mode, ...] = ("rn", "rz", "rd", "ru")


def _narrow_samples(format: Format, rng: np.random.Generator) -> Array:
    """Float32 to be rounded to this format."""
    top = format.infinity
    bits = np.unique(
        np.concatenate(
            [
                np.arange(12),
                (1 << (format.precision - 1)) + np.arange(-6, 7),
                rng.integers(0, top, 60),
                top - 1 - np.arange(6),
            ]
        )
    )
    values = [float(value_of(int(b), format)) for b in bits]
    positive = np.array(values, np.float32)
    # Where the next would be without an infinity: half way to it rounding overflows.
    beyond = np.array([2.0 ** (format.max_exponent + 1)]) if format is HALF else np.array([])
    all_positive = np.concatenate([positive, beyond.astype(np.float32)])
    finite = np.concatenate([-all_positive[::-1], all_positive[1:]])
    random = rng.integers(0, 1 << 32, 256, np.uint32)
    return np.concatenate([singles_near(finite), random])


def _program(
    name: str,
    section: str,
    body: str,
    make: Callable[[np.random.Generator], Array],
    convert_bits: Callable[[int], int],
    types: tuple[str, str, type[np.generic]],
    *,
    arch: str = "sm_80",
) -> Program:
    """One thread for each number. `types`: C's of input and output, numpy's of the output."""
    given, gives, dtype = types
    count = int(make(np.random.default_rng(0)).size)

    def expect(numbers: Array) -> Arrays:
        bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
        return [np.array(map_bits(convert_bits, numbers), np.uint64).astype(bits).view(dtype)]

    return Program(
        name=name,
        section=section,
        source=kernel(
            f"const {given}* in, {gives}* out",
            f"  int i = blockIdx.x * 128 + threadIdx.x;\n  if (i < {count}) {{ {body} }}",
            threads=128,
            before=_HEADERS,
        ),
        make=lambda rng: [make(rng)],
        expect=expect,
        grid=(-(-count // 128), 1, 1),
        block=(128, 1, 1),
        arch=arch,
    )


def _to_narrow(function: str, body: str, format: Format, mode: Mode, section: str) -> Program:
    return _program(
        function,
        section,
        body,
        lambda rng: _narrow_samples(format, rng),
        lambda bits: convert(bits, SINGLE, format, mode),
        ("float", "uint16_t", np.uint16),
    )


def _narrowing() -> list[Program]:
    half = "out[i] = __half_as_ushort({}(in[i]));"
    bfloat = "out[i] = __bfloat16_as_ushort({}(in[i]));"
    programs = [
        _to_narrow(f"__float2half_{m}", half.format(f"__float2half_{m}"), HALF, m, _HALF)
        for m in _MODES
    ]
    programs += [
        _to_narrow(
            f"__float2bfloat16_{m}", bfloat.format(f"__float2bfloat16_{m}"), BFLOAT, m, _BFLOAT
        )
        for m in _MODES
    ]
    return [
        *programs,
        _to_narrow("__float2half", half.format("__float2half"), HALF, "rn", _HALF),
        _to_narrow("half(float)", half.format("(half)"), HALF, "rn", _HALF),
        _to_narrow("__nv_bfloat16(float)", bfloat.format("(__nv_bfloat16)"), BFLOAT, "rn", _BFLOAT),
    ]


def _widening() -> list[Program]:
    return [
        _program(
            "__half2float",
            _HALF,
            "out[i] = __half2float(in[i]);",
            lambda rng: np.arange(0, 1 << 16, 7).astype(np.uint16).view(np.float16),
            lambda bits: convert(bits, HALF, SINGLE),
            ("__half", "float", np.float32),
        ),
        _program(
            "__bfloat162float",
            _BFLOAT,
            "out[i] = __bfloat162float(in[i]);",
            lambda rng: np.arange(0, 1 << 16, 7).astype(np.uint16),
            lambda bits: bits << 16,  # of NaN too
            ("__nv_bfloat16", "float", np.float32),
        ),
    ]


def _pairs() -> list[Program]:
    """Two at once: the first argument is in the lower half, but for cvt, where the second is."""
    forms: list[tuple[str, Format, Mode, str, bool]] = [
        ("__floats2half2_rn", HALF, "rn", "__floats2half2_rn(a, b)", False),
        ("__floats2bfloat162_rn", BFLOAT, "rn", "__floats2bfloat162_rn(a, b)", False),
        ("cvt.rn.f16x2.f32", HALF, "rn", "", True),
        ("cvt.rz.f16x2.f32", HALF, "rz", "", True),
        ("cvt.rn.bf16x2.f32", BFLOAT, "rn", "", True),
        ("cvt.rz.bf16x2.f32", BFLOAT, "rz", "", True),
    ]
    return [_pair(*form) for form in forms]


def _pair(name: str, format: Format, mode: Mode, call: str, swapped: bool) -> Program:
    if call:
        kind = "__half2" if format is HALF else "__nv_bfloat162"
        body = f"{kind} v = {call}; out[t] = *(uint32_t*)&v;"
    else:
        body = f'asm volatile("{name} %0, %1, %2;" : "=r"(out[t]) : "f"(a), "f"(b));'

    def make(rng: np.random.Generator) -> Arrays:
        bits = _narrow_samples(format, rng)
        return [rng.permutation(bits)[:256].view(np.float32).reshape(128, 2)]

    def expect(given: Array) -> Arrays:
        rounded = [
            np.array(map_bits(lambda bits: convert(bits, SINGLE, format, mode), column), np.uint32)
            for column in np.ascontiguousarray(given.T)
        ]
        low, high = reversed(rounded) if swapped else rounded
        return [low | high << 16]

    return Program(
        name=name,
        section=_HALF if format is HALF else _BFLOAT,
        source=kernel(
            "const float* in, uint32_t* out",
            f"  int t = threadIdx.x;\n  float a = in[2 * t], b = in[2 * t + 1];\n  {body}",
            threads=128,
            before=_HEADERS,
        ),
        make=make,
        expect=expect,
        block=(128, 1, 1),
    )


def _to_integer(bits: int, format: Format, mode: Mode, low: int, high: int) -> int:
    """Rounded to a whole number, kept within bounds; NaN is zero."""
    value = value_of(bits, format)
    if isinstance(value, float):
        return 0 if math.isnan(value) else (high if value > 0 else low)
    floor = math.floor(value)
    rest = value - floor
    if mode == "rn":
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and floor % 2 == 1)
    else:
        up = {"rz": value < 0 and rest > 0, "rd": False, "ru": rest > 0}[mode]
    return max(low, min(high, floor + int(up)))


def _integers() -> list[Program]:
    programs = []
    for mode in _MODES:
        for name, format, kind, make in (
            ("__half2int", HALF, "__half", halves),
            ("__float2int", SINGLE, "float", None),
        ):
            programs.append(_whole(f"{name}_{mode}", format, kind, mode, make))
    programs.append(_whole("int(float)", SINGLE, "float", "rz", None))
    for mode in _MODES:
        programs.append(_from_integer(f"__int2half_{mode}", HALF, mode))
        programs.append(_from_integer(f"__int2float_{mode}", SINGLE, mode))
    return programs


def _whole(
    name: str,
    format: Format,
    kind: str,
    mode: Mode,
    make: Callable[[np.random.Generator, int], Array] | None,
) -> Program:
    call = "(int)(in[i])" if name == "int(float)" else f"{name}(in[i])"

    def draw(rng: np.random.Generator) -> Array:
        if make is not None:
            return make(rng, 512).view(np.float16)
        near = rng.integers(-40, 40, 256).astype(np.float32) / np.float32(4)
        bits = rng.integers(0, 1 << 32, 120, np.uint32)
        edge = np.array([2**31, -(2**31), 2**31 - 128, np.inf, -np.inf, np.nan, 0.0, -0.0], "f4")
        return np.concatenate([near, bits.view(np.float32), edge])

    def to_bits(bits: int) -> int:
        return _to_integer(bits, format, mode, -(2**31), 2**31 - 1) & 0xFFFFFFFF

    section = _HALF if format is HALF else "CUDA Math API 13.0, Type Casting Intrinsics"
    return _program(name, section, f"out[i] = {call};", draw, to_bits, (kind, "int", np.int32))


def _from_integer(name: str, format: Format, mode: Mode) -> Program:
    def draw(rng: np.random.Generator) -> Array:
        small = rng.integers(-5000, 5000, 128)
        large = rng.integers(-(2**31), 2**31, 128)
        edge = [2**24, 2**24 + 1, 2**24 + 3, 65504, 65519, 65520, -65520, 2**31 - 1, -(2**31), 0]
        return np.concatenate([small, large, edge]).astype(np.int32)

    def to_bits(bits: int) -> int:
        signed = bits - (1 << 32) if bits >> 31 else bits
        return round_to(Fraction(signed), format, mode)

    half = format is HALF
    body = f"out[i] = __half_as_ushort({name}(in[i]));" if half else f"out[i] = {name}(in[i]);"
    section = _HALF if half else "CUDA Math API 13.0, Type Casting Intrinsics"
    kinds = ("int", "uint16_t", np.uint16) if half else ("int", "float", np.float32)
    return _program(name, section, body, draw, to_bits, kinds)


def _tf32() -> Program:
    """float32 with 10 bits of its fraction, the others zero; ties go away from zero."""

    def to_bits(bits: int) -> int:
        value = value_of(bits, SINGLE)
        if isinstance(value, float):
            return 0x7FFFFFFF if math.isnan(value) else bits
        narrow = Format(19, 11, 127)
        return round_to(value, narrow, "rna", minus_zero=is_minus(bits, SINGLE)) << 13

    def draw(rng: np.random.Generator) -> Array:
        bits = rng.integers(0, 0x7F000000, 120, np.uint32) & np.uint32(0x7FFFE000)
        near = [bits + np.uint32(d) for d in (0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF)]
        both = np.concatenate(near)
        return np.concatenate([both, both | np.uint32(1 << 31)]).view(np.float32)

    return _program(
        "cvt.rna.tf32.f32",
        "PTX ISA 9.1, 9.7.9.21 cvt",
        'asm volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(out[i]) : "f"(in[i]));',
        draw,
        to_bits,
        ("float", "uint32_t", np.uint32),
    )


def _of_bytes(kind: str, dtype: type[Any]) -> Program:
    """Pairs of floats of 8 bits as halves, the lower first; each but NaN."""

    def make(rng: np.random.Generator) -> Arrays:
        codes = np.arange(256, dtype=np.uint8)
        codes = codes[~np.isnan(codes.view(dtype).astype(np.float32))]
        pairs = np.stack([rng.permutation(codes), rng.permutation(codes)], axis=1)
        return [pairs.view(np.uint16)[:, 0]]

    def expect(pairs: Array) -> Arrays:
        halves = np.ascontiguousarray(pairs).view(dtype).astype(np.float16)
        return [halves.view(np.uint32)]

    count = make(np.random.default_rng(0))[0].size
    name = f"cvt.rn.f16x2.{kind}x2"
    return Program(
        name=name,
        section="PTX ISA 9.1, 9.7.9.21 cvt",
        source=kernel(
            "const uint16_t* in, uint32_t* out",
            f"  int i = threadIdx.x;\n  if (i < {count})"
            f' asm volatile("{name} %0, %1;" : "=r"(out[i]) : "h"(in[i]));',
            threads=256,
        ),
        make=make,
        expect=expect,
        block=(256, 1, 1),
        arch="sm_89",
    )


def programs() -> list[Program]:
    """All of them."""
    bytes_widened = [
        _of_bytes("e4m3", ml_dtypes.float8_e4m3fn),
        _of_bytes("e5m2", ml_dtypes.float8_e5m2),
    ]
    return [*_narrowing(), *_widening(), *_pairs(), *_integers(), _tf32(), *bytes_widened]
