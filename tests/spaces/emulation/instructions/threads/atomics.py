"""Atomic functions, on global and on shared memory, from several blocks.

Numbers are whole and small, so that sums of floats are exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.spaces.emulation.instructions.program import Array, Arrays, Program, kernel
from tests.spaces.emulation.instructions.rounding import bfloat_bits

_SECTION = "CUDA C++ Programming Guide 13.0, Atomic Functions"
_GRID, _THREADS, _BINS = 3, 64, 5

Fold = Callable[[Array, Array, Array], None]
"""Applies the numbers at their bins: bins, where, numbers."""


def _bins(function: np.ufunc) -> Fold:
    return lambda bins, where, numbers: function.at(bins, where, numbers)


def _exchange(bins: Array, where: Array, numbers: Array) -> None:
    bins[where] = where + 1


_FORMS: dict[str, tuple[str, type[np.generic], str, Fold]] = {
    "atomicAdd.int": ("int", np.int32, "atomicAdd(bin, v)", _bins(np.add)),
    "atomicAdd.uint32_t": ("uint32_t", np.uint32, "atomicAdd(bin, v)", _bins(np.add)),
    "atomicAdd.unsigned_long_long": (
        "unsigned long long",
        np.uint64,
        "atomicAdd(bin, v)",
        _bins(np.add),
    ),
    "atomicAdd.float": ("float", np.float32, "atomicAdd(bin, v)", _bins(np.add)),
    "atomicAdd.double": ("double", np.float64, "atomicAdd(bin, v)", _bins(np.add)),
    "atomicAdd.half": ("__half", np.float16, "atomicAdd(bin, v)", _bins(np.add)),
    "atomicSub.int": ("int", np.int32, "atomicSub(bin, v)", _bins(np.subtract)),
    "atomicMax.int": ("int", np.int32, "atomicMax(bin, v)", _bins(np.maximum)),
    "atomicMin.int": ("int", np.int32, "atomicMin(bin, v)", _bins(np.minimum)),
    "atomicMax.uint32_t": ("uint32_t", np.uint32, "atomicMax(bin, v)", _bins(np.maximum)),
    "atomicOr": ("uint32_t", np.uint32, "atomicOr(bin, v)", _bins(np.bitwise_or)),
    "atomicXor": ("uint32_t", np.uint32, "atomicXor(bin, v)", _bins(np.bitwise_xor)),
    "atomicExch": ("int", np.int32, "atomicExch(bin, where[i] + 1)", _exchange),
}


def _form(name: str) -> Program:
    kind, dtype, call, fold = _FORMS[name]
    body = f"""
  int i = blockIdx.x * {_THREADS} + threadIdx.x;
  {kind} v = in[i];
  {kind}* bin = out + where[i];
  {call};"""

    def make(rng: np.random.Generator) -> Arrays:
        n = _GRID * _THREADS
        low = -9 if np.dtype(dtype).kind in "if" else 0
        return [rng.integers(low, 10, n).astype(dtype), rng.integers(0, _BINS, n, np.int32)]

    def expect(given: Array, where: Array) -> Arrays:
        bins = np.zeros(_BINS, dtype)
        fold(bins, where, given)
        return [bins]

    return Program(
        name=name,
        section=_SECTION,
        source=kernel(
            f"const {kind}* in, const int* where, {kind}* out",
            body,
            threads=_THREADS,
            before="#include <cuda_fp16.h>",
        ),
        make=make,
        expect=expect,
        grid=(_GRID, 1, 1),
        block=(_THREADS, 1, 1),
        fill=0,
    )


def _tickets() -> Program:
    """Each caller gets another number: what was there before its own addition."""
    body = f"""
  uint32_t mine = atomicAdd(counter, 1u);
  taken[mine] = 1;
  uint32_t wrapped = atomicInc(counter + 1, in[0]);
  atomicAdd(taken + {_GRID * _THREADS} + wrapped, 1u);"""

    def expect(last: Array) -> Arrays:
        total = _GRID * _THREADS
        size = int(last[0]) + 1
        each = np.full(size, total // size, np.uint32)
        return [
            np.array([total, 0], np.uint32),
            np.concatenate([np.ones(total, np.uint32), each]),
        ]

    return Program(
        name="atomicAdd.returned",
        section=_SECTION,
        source=kernel(
            "const uint32_t* in, uint32_t* counter, uint32_t* taken", body, threads=_THREADS
        ),
        make=lambda rng: [np.array([11], np.uint32)],
        expect=expect,
        grid=(_GRID, 1, 1),
        block=(_THREADS, 1, 1),
        fill=0,
    )


def _compare_and_swap() -> Program:
    """The greatest float by atomicCAS in a loop."""
    body = f"""
  int i = blockIdx.x * {_THREADS} + threadIdx.x;
  int* address = (int*)(out + where[i]);
  int old = *(volatile int*)address, assumed;
  do {{
    assumed = old;
    old = atomicCAS(address, assumed, __float_as_int(fmaxf(in[i], __int_as_float(assumed))));
  }} while (assumed != old);"""

    def expect(given: Array, where: Array) -> Arrays:
        bins = np.zeros(_BINS, np.float32)
        np.maximum.at(bins, where, given)
        return [bins]

    return Program(
        name="atomicCAS",
        section=_SECTION,
        source=kernel("const float* in, const int* where, float* out", body, threads=_THREADS),
        make=lambda rng: [
            rng.standard_normal(_GRID * _THREADS).astype(np.float32),
            rng.integers(0, _BINS, _GRID * _THREADS, np.int32),
        ],
        expect=expect,
        grid=(_GRID, 1, 1),
        block=(_THREADS, 1, 1),
        fill=0,
    )


def _pairs(kind: str) -> Program:
    """atomicAdd of two halves at once, on shared memory first."""
    body = f"""
  __shared__ {kind} sums[{_BINS}];
  int i = blockIdx.x * {_THREADS} + threadIdx.x;
  if (threadIdx.x < {_BINS}) ((uint32_t*)sums)[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(sums + where[i], ((const {kind}*)in)[i]);
  __syncthreads();
  if (threadIdx.x < {_BINS}) atomicAdd(({kind}*)out + threadIdx.x, sums[threadIdx.x]);"""
    is_half = kind == "__half2"

    def make(rng: np.random.Generator) -> Arrays:
        n = _GRID * _THREADS
        numbers = rng.integers(-3, 4, (n, 2)).astype(np.float32)
        encoded = numbers.astype(np.float16) if is_half else bfloat_bits(numbers)
        return [encoded, rng.integers(0, _BINS, n, np.int32)]

    def expect(given: Array, where: Array) -> Arrays:
        numbers = (
            given.astype(np.float32)
            if is_half
            else (given.astype(np.uint32) << 16).view(np.float32)
        )
        bins = np.zeros((_BINS, 2), np.float32)
        np.add.at(bins, where, numbers)
        return [bins.astype(np.float16) if is_half else bfloat_bits(bins)]

    return Program(
        name=f"atomicAdd.{kind.strip('_')}",
        section=_SECTION,
        source=kernel(
            "const void* in, const int* where, void* out",
            body,
            threads=_THREADS,
            before="#include <cuda_fp16.h>\n#include <cuda_bf16.h>",
        ),
        make=make,
        expect=expect,
        grid=(_GRID, 1, 1),
        block=(_THREADS, 1, 1),
        fill=0,
    )


def programs() -> list[Program]:
    """All of them."""
    return [
        *(_form(name) for name in _FORMS),
        _tickets(),
        _compare_and_swap(),
        _pairs("__half2"),
        _pairs("__nv_bfloat162"),
    ]
