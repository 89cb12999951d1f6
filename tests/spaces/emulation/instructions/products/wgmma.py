"""wgmma.mma_async: products of a warpgroup, with operands in shared memory.

Elements are small whole numbers, so that every sum is exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import ml_dtypes
import numpy as np

from tests.spaces.emulation.instructions.products.fragments import A_M16K16, registers
from tests.spaces.emulation.instructions.products.shared_layouts import Layout, by_k, by_rows
from tests.spaces.emulation.instructions.program import Array, Arrays, Program, kernel
from tests.spaces.emulation.instructions.rounding import bfloat_bits

_SECTION = "PTX ISA 9.1, 9.7.15.5.1 Register Fragments and Shared Memory Matrix Layouts, 9.7.15.5.2"

_TYPES = {
    "f16": np.float16,
    "tf32": np.float32,
    "s8": np.int8,
    "u8": np.uint8,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}

_TF32_STEP = 1 << 13
"""Between the bits of float32 that TF32 holds."""

Lay = Callable[[int, int], Layout]
"""From an operand's rows and the bytes of each."""

_BY_K: Lay = partial(by_k, swizzle_bytes=128)


@dataclass(frozen=True, slots=True)
class Wgmma:
    """One form.

    Attributes:
        n, k: of the whole product; an instruction's K is `step`.
        a: how A lies in shared memory; None where threads hold it in registers.
        scale_d: 0 where the first instruction does not add to D.
        scale_a: 1, or -1 where A is negated.
        cut: whether elements have bits that TF32 does not hold.
    """

    name: str
    n: int
    k: int
    kinds: str = "f32.f16.f16"
    step: int = 16
    a: Lay | None = _BY_K
    b: Lay = _BY_K
    scale_d: int = 1
    scale_a: int = 1
    low: int = -8
    high: int = 8
    cut: bool = False


def _encode(values: Array, kind: str) -> Array:
    if kind == "bf16":
        return bfloat_bits(values.astype(np.float32))
    return values.astype(_TYPES[kind])


def _draw(rng: np.random.Generator, form: Wgmma, rows: int, kind: str) -> Array:
    found = _encode(rng.integers(form.low, form.high + 1, (rows, form.k)), kind)
    if not form.cut:
        return found
    below = rng.integers(0, _TF32_STEP, found.shape, np.uint32)
    more: Array = (found.view(np.uint32) | below).view(np.float32)
    return more


def _in(swizzle_bytes: int) -> Lay:
    return partial(by_k, swizzle_bytes=swizzle_bytes)


def _across(swizzle_bytes: int) -> Lay:
    return partial(by_rows, swizzle_bytes=swizzle_bytes)


_FORMS = [
    *(Wgmma("", n, 32) for n in (8, 16, 128, 256)),
    Wgmma("", 64, 64),
    Wgmma("", 64, 32, kinds="f32.bf16.bf16"),
    Wgmma("", 24, 32, kinds="f16.f16.f16", low=-4, high=4),
    Wgmma("a-in-registers", 64, 32, a=None),
    Wgmma("a-in-registers", 64, 32, kinds="f32.bf16.bf16", a=None),
    *(Wgmma(f"swizzle-{s}", 32, 16, a=_in(s), b=_in(s)) for s in (32, 64)),
    Wgmma("no-swizzle", 32, 32, a=_in(0), b=_in(0)),
    Wgmma("b-n-major", 64, 32, b=_across(128)),
    Wgmma("b-n-major", 128, 32, b=_across(128)),
    Wgmma("b-n-major.swizzle-64", 64, 32, b=_across(64)),
    Wgmma("b-n-major.swizzle-32", 64, 32, b=_across(32)),
    Wgmma("b-n-major.no-swizzle", 64, 32, b=_across(0)),
    Wgmma("a-m-major", 64, 32, a=_across(128)),
    Wgmma("scale-d-0", 8, 32, scale_d=0),
    Wgmma("scale-a--1", 8, 32, scale_a=-1),
    Wgmma("", 64, 16, kinds="f32.tf32.tf32", step=8),
    Wgmma("cut", 64, 16, kinds="f32.tf32.tf32", step=8, cut=True),
    Wgmma("", 64, 64, kinds="s32.s8.s8", step=32, low=-128, high=127),
    Wgmma("", 16, 64, kinds="s32.u8.u8", step=32, low=0, high=255),
    Wgmma("", 64, 64, kinds="f32.e4m3.e4m3", step=32),
    Wgmma("scale-d-0", 16, 64, kinds="f32.e5m2.e5m2", step=32, scale_d=0),
]

_ACCUMULATORS = {"f32": np.float32, "f16": np.float16, "s32": np.int32}


def _program(form: Wgmma) -> Program:
    to, kind, _ = form.kinds.split(".")
    accumulator = np.dtype(_ACCUMULATORS[to])
    element = _encode(np.zeros(1), kind).dtype
    name = f"wgmma.m64n{form.n}k{form.step}.{form.kinds}"
    row_bytes = form.k * element.itemsize
    left = None if form.a is None else form.a(64, row_bytes)
    right = form.b(form.n, row_bytes)

    def make(rng: np.random.Generator) -> Arrays:
        a, b = (_draw(rng, form, rows, kind) for rows in (64, form.n))
        c = rng.integers(-900, 901, (64, form.n)).astype(accumulator)
        return [_held_a(a) if left is None else left.write(a), right.write(b), deal(c)]

    def expect(first: Array, second: Array, c: Array) -> Arrays:
        a = _gather_a(first, element) if left is None else left.read(first, element)
        product = form.scale_a * _decode(a, kind) @ _decode(right.read(second, element), kind).T
        if form.scale_d:
            product = product + gather(c, form.n, accumulator).astype(np.float64)
        return [deal(product.astype(accumulator))]

    return Program(
        name=f"{name}.{form.name}" if form.name else name,
        section=_SECTION,
        source=source_of(form, left, right),
        make=make,
        expect=expect,
        block=(128, 1, 1),
        shared_bytes=_room(left) + _room(right),
        arch="sm_90a",
    )


def _room(layout: Layout | None) -> int:
    """Bytes of shared memory: each operand begins at a multiple of 1024."""
    return 0 if layout is None else -(-layout.size // 1024) * 1024


def _decode(encoded: Array, kind: str) -> Array:
    if kind == "bf16":
        return (encoded.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if kind == "tf32":
        encoded = (encoded.view(np.uint32) & ~np.uint32(_TF32_STEP - 1)).view(np.float32)
    return encoded.astype(np.float64)


def _held_a(a: Array) -> Array:
    """A as registers (K step, thread, register): warp w holds rows 16*w on as mma.sync's m16k16."""
    steps = [
        np.concatenate(
            [registers(A_M16K16.deal(a[r : r + 16, k : k + 16])) for r in range(0, 64, 16)]
        )
        for k in range(0, a.shape[1], 16)
    ]
    return np.stack(steps)


def _gather_a(held: Array, element: np.dtype[np.generic]) -> Array:
    parts = held.view(element).reshape(held.shape[0], 4, 32, 8)
    return np.hstack([np.vstack([A_M16K16.gather(w, (16, 16)) for w in step]) for step in parts])


def _places(n: int) -> tuple[Array, Array]:
    """Row and column of D, by thread and element."""
    thread, i = np.meshgrid(np.arange(128), np.arange(n // 2), indexing="ij")
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2)
    return row, 8 * (i // 4) + 2 * (thread % 4) + i % 2


def deal(d: Array) -> Array:
    """The registers of D that each thread of a warpgroup holds."""
    held = np.ascontiguousarray(d[_places(d.shape[1])])
    return registers(held) if held.dtype == np.float16 else held


def gather(held: Array, n: int, kind: np.dtype[np.generic]) -> Array:
    """D, of which threads hold these registers."""
    d = np.zeros((64, n), kind)
    d[_places(n)] = held.view(kind).reshape(128, -1)
    return d


def source_of(form: Wgmma, left: Layout | None, right: Layout) -> str:
    """CUDA C of one product; parameters are A, B, what D holds before, and D."""
    to, _, _ = form.kinds.split(".")
    word = {"f32": "float", "f16": "uint32_t", "s32": "int"}[to]
    count = form.n // 2 // (2 if to == "f16" else 1)
    of_a = _room(left)
    parameters = f"const {'uint8_t' if left else 'uint32_t'}* a, const uint8_t* b, const {word}* c,"
    parameters += f" {word}* d"
    lines = ["  extern __shared__ __align__(1024) uint8_t shared[];"]
    if left:
        lines.append(_copy("a", "shared", left.size))
    lines.append(_copy("b", f"shared + {of_a}", right.size))
    lines += [
        '  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");',
        "  __syncthreads();",
        f"  {word} r[{count}];",
        f"  for (int i = 0; i < {count}; ++i) r[i] = c[threadIdx.x * {count} + i];",
        _descriptor("descA", "shared", left) if left else _load_a(form.k // form.step),
        _descriptor("descB", f"shared + {of_a}", right),
        '  asm volatile("wgmma.fence.sync.aligned;" : : : "memory");',
    ]
    for step in range(form.k // form.step):
        lines.append(_instruction(form, step, count, word, left, right))
    lines += [
        '  asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");',
        '  asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory");',
        f"  for (int i = 0; i < {count}; ++i) d[threadIdx.x * {count} + i] = r[i];",
    ]
    return kernel(parameters, "\n".join(lines), threads=128)


def _copy(source: str, target: str, size: int) -> str:
    return f"  for (int i = threadIdx.x; i < {size}; i += 128) ({target})[i] = {source}[i];"


def _load_a(steps: int) -> str:
    """All of A's registers, before the fence that orders them before the products."""
    return (
        f"  uint32_t held[{4 * steps}];\n  for (int i = 0; i < {4 * steps}; ++i)"
        " held[i] = a[(i / 4 * 128 + threadIdx.x) * 4 + i % 4];"
    )


def _descriptor(name: str, address: str, layout: Layout) -> str:
    return (
        f"  uint64_t {name} = 0x{layout.descriptor():016x}ull"
        f" | (uint64_t)((__cvta_generic_to_shared({address}) & 0x3ffff) >> 4);"
    )


def _instruction(
    form: Wgmma, step: int, count: int, word: str, left: Layout | None, right: Layout
) -> str:
    to, kind, _ = form.kinds.split(".")
    letter = "f" if word == "float" else "r"
    d = ", ".join(f"%{i}" for i in range(count))
    ins: list[str] = []
    if left is None:
        held = ", ".join(f"%{count + i}" for i in range(4))
        operand_a = "{" + held + "}"
        ins += [f'"r"(held[{4 * step + i}])' for i in range(4)]
    else:
        operand_a = f"%{count}"
        ins.append(f'"l"(descA + {left.step_bytes * step >> 4})')
    operand_b = f"%{count + len(ins)}"
    ins.append(f'"l"(descB + {right.step_bytes * step >> 4})')
    predicate = f"%{count + len(ins)}"
    ins.append(f'"r"({form.scale_d if step == 0 else 1})')
    flags = [] if to == "s32" else [str(form.scale_a), "1"]
    if kind in ("f16", "bf16"):
        flags += ([str(int(left.by_rows))] if left else []) + [str(int(right.by_rows))]
    text = f"wgmma.mma_async.sync.aligned.m64n{form.n}k{form.step}.{form.kinds}"
    operands = ", ".join([f"{{{d}}}", operand_a, operand_b, "ps0", *flags])
    outs = ", ".join(f'"+{letter}"(r[{i}])' for i in range(count))
    return (
        f'  asm volatile("{{ .reg .pred ps0; setp.ne.b32 ps0, {predicate}, 0; '
        f'{text} {operands}; }}"\n    : {outs}\n    : {", ".join(ins)});'
    )


def _setmaxnreg() -> Program:
    """Three warpgroups: one gives registers away, two take them and keep 180 values each.

    384 threads have 168 registers each, if they are the only block: 128 * 40 + 256 * 232 in all.
    Without that bound the compiler ignores the instruction.
    """
    body = """
  int t = threadIdx.x;
  if (t < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;" : : : "memory");
    out[t] = in[t] * 3;
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;" : : : "memory");
    uint32_t r[180];
#pragma unroll
    for (int i = 0; i < 180; ++i) r[i] = ((const volatile uint32_t*)in)[(t + i) % 384];
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < 180; ++i) sum = sum * 5 + r[179 - i];
    out[t] = sum;
  }"""

    def expect(given: Array) -> Arrays:
        t = np.arange(384)
        total = np.zeros(384, np.uint32)
        for i in reversed(range(180)):
            total = total * np.uint32(5) + given[(t + i) % 384]
        return [np.where(t < 128, given * np.uint32(3), total)]

    return Program(
        name="setmaxnreg",
        section="PTX ISA 9.1, 9.7.19.5 setmaxnreg",
        source=kernel("const uint32_t* in, uint32_t* out", body, threads=384, blocks=1),
        make=lambda rng: [rng.integers(0, 1 << 32, 384, np.uint32)],
        expect=expect,
        block=(384, 1, 1),
        arch="sm_90a",
    )


def programs() -> list[Program]:
    """All of them."""
    return [*map(_program, _FORMS), _setmaxnreg()]
