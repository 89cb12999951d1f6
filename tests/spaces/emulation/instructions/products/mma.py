"""mma.sync: products of small matrices of which the threads of a warp hold the elements.

Elements are small whole numbers, so that every sum is exact in any order, and random ones, so that
an element in a wrong place shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tests.spaces.emulation.instructions.products import fragments as f
from tests.spaces.emulation.instructions.products.fragments import Fragment, registers
from tests.spaces.emulation.instructions.program import Array, Arrays, Program, kernel
from tests.spaces.emulation.instructions.rounding import bfloat_bits

_SECTION = "PTX ISA 9.1, 9.7.14.5.{}, and 9.7.14.5.14 mma"


@dataclass(frozen=True, slots=True)
class _Mma:
    """One form. `encode` gives the bits of whole numbers as A and B hold them."""

    name: str
    section: str
    shape: tuple[int, int, int]
    a: Fragment
    b: Fragment
    c: Fragment
    encode: Callable[[Array], Array]
    word: str = "uint32_t"
    accumulator: str = "float"
    low: int = -8
    high: int = 8
    arch: str = "sm_80"


def _tf32(values: Array) -> Array:
    return values.astype(np.float32)


def _bfloat(values: Array) -> Array:
    return bfloat_bits(values.astype(np.float32))


def _half(values: Array) -> Array:
    return values.astype(np.float16)


def _narrow(name: str, depth: int, encode: Callable[[Array], Array]) -> _Mma:
    """Factors of 16 bits."""
    accumulator = "half" if name.endswith(".f16") else "float"
    if depth == 16:
        title, a, b = (
            "8 Matrix Fragments for mma.m16n8k16 with floating point type",
            f.A_M16K16,
            f.B_K16N8,
        )
    else:
        title, a, b = "7 Matrix Fragments for mma.m16n8k8", f.A_M16K8, f.B_K8N8
    shape = (16, 8, depth)
    name = f"m16n8k{depth}.row.col.{name}"
    return _Mma(name, title, shape, a, b, f.ACCUMULATOR, encode, accumulator=accumulator)


def _bytes(kind: str, depth: int) -> _Mma:
    """Factors of 8 bits."""
    if depth == 32:
        title, a, b = "10 Matrix Fragments for mma.m16n8k32", f.A_M16K32_S8, f.B_K32N8_S8
    else:
        title, a, b = (
            "9 Matrix Fragments for mma.m16n8k16 with integer type",
            f.A_M16K16_S8,
            f.B_K16N8_S8,
        )
    dtype = np.int8 if kind == "s8" else np.uint8
    return _Mma(
        f"m16n8k{depth}.row.col.s32.{kind}.{kind}.s32",
        title,
        (16, 8, depth),
        a,
        b,
        f.ACCUMULATOR,
        lambda values: values.astype(dtype),
        accumulator="int",
        low=int(np.iinfo(dtype).min),
        high=int(np.iinfo(dtype).max),
    )


def _byte_floats(kind: str, dtype: type[Any]) -> _Mma:
    """Factors of 8 bits that are floats, which hold whole numbers up to 8."""
    return _Mma(
        f"m16n8k32.row.col.f32.{kind}.{kind}.f32",
        "10 Matrix Fragments for mma.m16n8k32",
        (16, 8, 32),
        f.A_M16K32_S8,
        f.B_K32N8_S8,
        f.ACCUMULATOR,
        lambda values: values.astype(dtype),
        arch="sm_89",
    )


_FORMS = [
    *(
        _narrow(name, depth, encode)
        for depth in (16, 8)
        for name, encode in (
            ("f32.f16.f16.f32", _half),
            ("f16.f16.f16.f16", _half),
            ("f32.bf16.bf16.f32", _bfloat),
        )
    ),
    _Mma(
        "m16n8k8.row.col.f32.tf32.tf32.f32",
        "7 Matrix Fragments for mma.m16n8k8",
        (16, 8, 8),
        a=f.A_M16K8_TF32,
        b=f.B_K8N8_TF32,
        c=f.ACCUMULATOR,
        encode=_tf32,
    ),
    _Mma(
        "m16n8k4.row.col.f32.tf32.tf32.f32",
        "6 Matrix Fragments for mma.m16n8k4",
        (16, 8, 4),
        a=f.A_M16K4_TF32,
        b=f.B_K4N8_TF32,
        c=f.ACCUMULATOR,
        encode=_tf32,
    ),
    *(_bytes(kind, depth) for kind in ("s8", "u8") for depth in (32, 16)),
    _byte_floats("e4m3", ml_dtypes.float8_e4m3fn),
    _byte_floats("e5m2", ml_dtypes.float8_e5m2),
    _Mma(
        "m8n8k16.row.col.s32.s8.s8.s32",
        "3 Matrix Fragments for mma.m8n8k16",
        (8, 8, 16),
        a=f.A_M8K16_S8,
        b=f.B_K16N8_S8,
        c=f.ACCUMULATOR_8,
        encode=lambda values: values.astype(np.int8),
        accumulator="int",
        low=-128,
        high=127,
    ),
    _Mma(
        "m8n8k4.row.col.f64.f64.f64.f64",
        "2 Matrix Fragments for mma.m8n8k4 with .f64 floating point type",
        (8, 8, 4),
        a=f.A_M8K4_F64,
        b=f.B_K4N8_F64,
        c=f.ACCUMULATOR_8,
        encode=lambda values: values.astype(np.float64),
        word="double",
        accumulator="double",
    ),
]

_TYPES = {"float": np.float32, "half": np.float16, "int": np.int32, "double": np.float64}
_LETTERS = {"float": "f", "uint32_t": "r", "int": "r", "double": "d"}


def _program(form: _Mma) -> Program:
    rows, columns, depth = form.shape
    kind = np.dtype(_TYPES[form.accumulator])
    # Two halves of an accumulator lie in one register.
    word = "uint32_t" if form.accumulator == "half" else form.accumulator
    inputs = _random(form, np.random.default_rng(0))
    counts = [array.shape[1] for array in inputs]

    def expect(a: Array, b: Array, c: Array) -> Arrays:
        left, right = (
            fragment.gather(held.view(form.encode(np.zeros(1)).dtype).reshape(32, -1), shape)
            for fragment, held, shape in (
                (form.a, a, (rows, depth)),
                (form.b, b, (depth, columns)),
            )
        )
        added = form.c.gather(c.view(kind).reshape(32, -1), (rows, columns))
        product = _numbers(left, form) @ _numbers(right, form) + added.astype(np.float64)
        return [form.c.deal(product.astype(kind)).view(c.dtype)]

    return Program(
        name=f"mma.sync.{form.name}",
        section=_SECTION.format(form.section),
        source=_source(form.name, counts, form.word, word),
        make=lambda rng: _random(form, rng),
        expect=expect,
        arch=form.arch,
    )


def _source(name: str, counts: list[int], word: str, accumulator: str) -> str:
    na, nb, nc = counts
    numbers = iter(range(nc + na + nb + nc))
    groups = [
        "{" + ", ".join(f"%{next(numbers)}" for _ in range(n)) + "}" for n in (nc, na, nb, nc)
    ]
    letter = _LETTERS[accumulator]
    outs = ", ".join(f'"={letter}"(d[threadIdx.x * {nc} + {i}])' for i in range(nc))
    ins = ", ".join(
        f'"{kind}"({array}[threadIdx.x * {n} + {i}])'
        for array, n, kind in (
            ("a", na, _LETTERS[word]),
            ("b", nb, _LETTERS[word]),
            ("c", nc, letter),
        )
        for i in range(n)
    )
    return kernel(
        f"const {word}* a, const {word}* b, const {accumulator}* c, {accumulator}* d",
        f'  asm volatile("mma.sync.aligned.{name} {", ".join(groups)};"\n'
        f"               : {outs}\n               : {ins});",
    )


def _random(form: _Mma, rng: np.random.Generator) -> Arrays:
    rows, columns, depth = form.shape
    a, b = (
        rng.integers(form.low, form.high + 1, shape) for shape in ((rows, depth), (depth, columns))
    )
    c = rng.integers(-900, 901, (rows, columns)).astype(_TYPES[form.accumulator])
    words = np.dtype({"uint32_t": np.uint32, "double": np.float64}[form.word])
    added = form.c.deal(c)
    return [
        form.a.deal(form.encode(a)).view(words),
        form.b.deal(form.encode(b)).view(words),
        added.view(np.uint32) if form.accumulator == "half" else added,
    ]


def _numbers(encoded: Array, form: _Mma) -> Array:
    if form.encode is _bfloat:
        return (encoded.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return encoded.astype(np.float64)


def _quad_pairs() -> Program:
    """m8n8k4: four products of 8x8x4, each of two groups of four threads that are 16 apart."""
    thread, i = np.meshgrid(np.arange(32), np.arange(4), indexing="ij")
    row = thread % 4 + 4 * (thread // 16)
    product = thread // 4 % 4

    def make(rng: np.random.Generator) -> Arrays:
        a = rng.integers(-8, 9, (4, 8, 4)).astype(np.float16)
        b = rng.integers(-8, 9, (4, 4, 8)).astype(np.float16)
        c = rng.integers(-900, 901, (4, 8, 8)).astype(np.float16)
        return [registers(a[product, row, i]), registers(b[product, i, row]), _rows(c)]

    def _rows(c: Array) -> Array:
        return registers(c[product[:, 0], row[:, 0]])

    def expect(a: Array, b: Array, c: Array) -> Arrays:
        left, right = np.zeros((4, 8, 4)), np.zeros((4, 4, 8))
        left[product, row, i] = a.view(np.float16)
        right[product, i, row] = b.view(np.float16)
        added = np.zeros((4, 8, 8))
        added[product[:, 0], row[:, 0]] = c.view(np.float16)
        return [_rows((left @ right + added).astype(np.float16))]

    return Program(
        name="mma.sync.m8n8k4.row.col.f16.f16.f16.f16",
        section=_SECTION.format("1 Matrix Fragments for mma.m8n8k4 with .f16 floating point type"),
        source=_source("m8n8k4.row.col.f16.f16.f16.f16", [2, 2, 4], "uint32_t", "uint32_t"),
        make=make,
        expect=expect,
    )


def programs() -> list[Program]:
    """All of them."""
    return [*(_program(form) for form in _FORMS), _quad_pairs()]
