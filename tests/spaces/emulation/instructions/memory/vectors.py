"""Loads and stores of vectors, and through the read-only cache."""

from __future__ import annotations

import numpy as np

from tests.spaces.emulation.instructions.program import Arrays, Program, kernel

_VECTORS = "CUDA C++ Programming Guide 13.0, Built-in Vector Types"
_LDG = "CUDA C++ Programming Guide 13.0, Read-Only Data Cache Load Function"
_LD = "PTX ISA 9.1, 9.7.9.8 ld, 9.7.9.9 ld.global.nc, 9.7.9.11 st"

_TYPES = {
    "float": (np.float32, (2, 3, 4)),
    "int": (np.int32, (1, 2, 3, 4)),
    "uint": (np.uint32, (2, 4)),
    "short": (np.int16, (2, 4)),
    "ushort": (np.uint16, (2, 3, 4)),
    "char": (np.int8, (2, 4)),
    "uchar": (np.uint8, (2, 3, 4)),
    "longlong": (np.int64, (2,)),
    "double": (np.float64, (2,)),
}


def _vector(name: str, count: int) -> Program:
    """Loads a vector, stores its elements in reverse with make_NAME."""
    kind, vector = np.dtype(_TYPES[name][0]), f"{name}{count}"
    names = "xyzw"[:count]
    elements = ", ".join(f"v.{letter}" for letter in reversed(names))
    body = f"""
  {vector} v = ((const {vector}*)in)[31 - threadIdx.x];
  (({vector}*)out)[threadIdx.x] = make_{vector}({elements});"""

    def make(rng: np.random.Generator) -> Arrays:
        low, high = (-100, 100) if kind.kind in "if" else (0, 200)
        return [rng.integers(low, high, (32, count)).astype(kind)]

    return Program(
        name=f"vector.{vector}",
        section=_VECTORS,
        source=kernel("const void* in, void* out", body),
        make=make,
        expect=lambda given: [np.ascontiguousarray(given[::-1, ::-1])],
    )


def _readonly(kind: str, dtype: type[np.generic]) -> Program:
    return Program(
        name=f"__ldg.{kind}",
        section=_LDG,
        source=kernel(
            f"const {kind}* __restrict__ in, {kind}* out",
            "  out[threadIdx.x] = __ldg(in + (31 - threadIdx.x));",
        ),
        make=lambda rng: [rng.integers(-1000, 1000, 32).astype(dtype)],
        expect=lambda given: [np.ascontiguousarray(given[::-1])],
    )


def _guarded() -> Program:
    """A load that TVM guards: zero where the predicate is false; the address then is wild."""
    body = """
  float value;
  int guard = threadIdx.x % 3 != 0;
  asm volatile(
    "{.reg .pred p;\\n"
    " setp.ne.b32 p, %2, 0;\\n"
    " @!p mov.b32 %0, 0;\\n"
    " @p ld.global.nc.f32 %0, [%1];}\\n"
    : "=f"(value) : "l"((void*)(in + (guard ? 31 - threadIdx.x : 1 << 30))), "r"(guard));
  out[threadIdx.x] = value;"""
    return Program(
        name="ld.global.nc.guarded",
        section=_LD,
        source=kernel("const float* in, float* out", body),
        make=lambda rng: [rng.standard_normal(32).astype(np.float32)],
        expect=lambda given: [np.where(np.arange(32) % 3 != 0, given[::-1], np.float32(0))],
    )


def _wide() -> Program:
    body = """
  uint32_t r[4];
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "l"(in + 4 * (31 - threadIdx.x)) : "memory");
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
    : : "l"(out + 4 * threadIdx.x), "r"(r[1]), "r"(r[0]), "r"(r[3]), "r"(r[2]) : "memory");"""
    return Program(
        name="ld.global.v4.u32",
        section=_LD,
        source=kernel("const uint32_t* in, uint32_t* out", body),
        make=lambda rng: [rng.integers(0, 1 << 32, (32, 4), np.uint32)],
        expect=lambda given: [np.ascontiguousarray(given[::-1][:, [1, 0, 3, 2]])],
    )


def programs() -> list[Program]:
    """All of them."""
    return [
        *(_vector(name, count) for name, (_, counts) in _TYPES.items() for count in counts),
        _readonly("float", np.float32),
        _readonly("int", np.int32),
        _guarded(),
        _wide(),
    ]
