"""How mma.sync rounds what it sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.gpu.instructions.accumulation import fit
from benchmarks.gpu.instructions.questions.question import Question, ask
from tests.spaces.emulation.instructions.products import fragments as f
from tests.spaces.emulation.instructions.products.shared_layouts import by_k
from tests.spaces.emulation.instructions.products.wgmma import Wgmma, deal, gather, source_of
from tests.spaces.emulation.instructions.program import Array, Arrays, kernel
from tests.spaces.emulation.instructions.rounding import BFLOAT, E5M2, HALF, SINGLE, Format


def mma_source(shape: str, counts: Sequence[int], accumulator: str) -> str:
    """CUDA C of one product a block; `counts` are the registers of A, B and C."""
    na, nb, nc = counts
    numbers = iter(range(nc + na + nb + nc))
    groups = [
        "{" + ", ".join(f"%{next(numbers)}" for _ in range(n)) + "}" for n in (nc, na, nb, nc)
    ]
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
class Sum:
    """One form of mma.sync, and the formats of its factors and its accumulator."""

    shape: str
    depth: int
    a: f.Fragment
    b: f.Fragment
    factors: Format
    bits: type[np.unsignedinteger[Any]]
    accumulator: Format
    arch: str = "sm_80"


SUMS = [
    Sum("m16n8k16.row.col.f32.f16.f16.f32", 16, f.A_M16K16, f.B_K16N8, HALF, np.uint16, SINGLE),
    Sum("m16n8k16.row.col.f32.bf16.bf16.f32", 16, f.A_M16K16, f.B_K16N8, BFLOAT, np.uint16, SINGLE),
    Sum("m16n8k16.row.col.f16.f16.f16.f16", 16, f.A_M16K16, f.B_K16N8, HALF, np.uint16, HALF),
    Sum("m16n8k8.row.col.f32.f16.f16.f32", 8, f.A_M16K8, f.B_K8N8, HALF, np.uint16, SINGLE),
    Sum(
        "m16n8k8.row.col.f32.tf32.tf32.f32",
        8,
        f.A_M16K8_TF32,
        f.B_K8N8_TF32,
        SINGLE,
        np.uint32,
        SINGLE,
    ),
    Sum(
        "m16n8k32.row.col.f32.e5m2.e5m2.f32",
        32,
        f.A_M16K32_S8,
        f.B_K32N8_S8,
        E5M2,
        np.uint8,
        SINGLE,
        arch="sm_89",
    ),
]
_BYTES = Wgmma("", 8, 32, kinds="f32.e5m2.e5m2", step=32)
_PRODUCTS = 4


def to_bits(values: Array, form: Sum) -> Array:
    """Bits of a form's factors with these values, cut or rounded."""
    if form.factors is HALF:
        return values.astype(np.float16).view(np.uint16)
    if form.factors is E5M2:
        return values.astype(ml_dtypes.float8_e5m2).view(np.uint8)
    single = values.astype(np.float32).view(np.uint32)
    if form.factors is BFLOAT:
        return (single >> 16).astype(np.uint16)
    return single & np.uint32(0xFFFFE000)


def _spread(rng: np.random.Generator, shape: tuple[int, ...], octaves: int) -> Array:
    """Numbers of both signs whose exponents differ by up to so many."""
    exponents = rng.integers(-octaves, 1, shape)
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(1, 2, shape) * 2.0**exponents


def _sums(form: Sum) -> Question:
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
                to_bits(_spread(rng, shape, 2 + 3 * product), form)
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
        ask(
            f"sum.{form.shape}",
            mma_source(form.shape, counts, "float" if single else "uint32_t"),
            make,
            [np.zeros((_PRODUCTS, 32, counts[2]), words)],
            grid=(_PRODUCTS, 1, 1),
            arch=form.arch,
        ),
        answer,
    )


def _of_warpgroup(form: Wgmma, factors: Format, dtype: type[Any]) -> Question:
    """m64n8 with both factors in shared memory."""
    left, right = by_k(64, 32, 128), by_k(8, 32, 128)
    kind, single = np.dtype(dtype), np.dtype(np.float32)
    bits = np.dtype(f"u{kind.itemsize}")
    name = f"wgmma.m64n8k{form.step}.{form.kinds}"

    def make(rng: np.random.Generator) -> Arrays:
        a, b = (_spread(rng, (rows, form.k), 6).astype(kind) for rows in (64, 8))
        start = (4 * _spread(rng, (64, 8), 6)).astype(single)
        return [left.write(a), right.write(b), deal(start)]

    def answer(inputs: Arrays, outputs: Arrays) -> dict[str, Any]:
        a, b = left.read(inputs[0], kind), right.read(inputs[1], kind)
        start, got = (gather(held, 8, single).view(np.uint32) for held in (inputs[2], outputs[0]))
        rows = np.s_[::4]
        left_bits = np.ascontiguousarray(a[rows]).view(bits)[None]
        right_bits = np.ascontiguousarray(b.T).view(bits)[None]
        held = (start[rows][None], got[rows][None])
        return fit(left_bits, right_bits, *held, factors=factors)

    return Question(
        f"how {name} rounds its sums",
        ask(
            f"sum.{name}",
            source_of(form, left, right),
            make,
            [np.zeros((128, 4), np.float32)],
            block=(128, 1, 1),
            shared_bytes=8192 + 1024,
            arch="sm_90a",
        ),
        answer,
    )


def questions() -> list[Question]:
    """All of them."""
    return [
        *(_sums(form) for form in SUMS),
        _of_warpgroup(Wgmma("", 8, 16), HALF, np.float16),
        _of_warpgroup(_BYTES, E5M2, ml_dtypes.float8_e5m2),
    ]
