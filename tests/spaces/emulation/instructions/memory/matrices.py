"""ldmatrix, stmatrix and movmatrix: rows of 8x8 matrices in shared memory to and from registers.

Thread t holds, of each matrix, elements 2*(t%4) and 2*(t%4)+1 of row t/4, the first in the lower
half of its register; with .trans, of column t/4. Threads 8*i to 8*i+7 give the addresses of the
rows of matrix i.
"""

from __future__ import annotations

import numpy as np

from tests.spaces.emulation.instructions.program import Array, Arrays, Program, kernel

_LDMATRIX = "PTX ISA 9.1, 9.7.14.5.15 Warp-level matrix load instruction: ldmatrix"
_STMATRIX = "PTX ISA 9.1, 9.7.14.5.16 Warp-level matrix store instruction: stmatrix"
_MOVMATRIX = "PTX ISA 9.1, 9.7.14.5.17 Warp-level matrix transpose instruction: movmatrix"

_STRIDE = 24
"""Elements from row to row in shared memory: 48 bytes, so that rows are aligned, and not packed."""


def _shape(count: int, trans: bool) -> str:
    return f"sync.aligned.m8n8.x{count}{'.trans' if trans else ''}"


def _registers(first: int, count: int) -> str:
    return "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}"


def _load(count: int, trans: bool) -> Program:
    # Rows are given in an order that no arithmetic on thread numbers would guess.
    outs = ", ".join(f'"=r"(r[{i}])' for i in range(count))
    body = f"""
  __shared__ __align__(16) uint16_t rows[32 * {_STRIDE}];
  for (int i = threadIdx.x; i < 32 * 8; i += 32) rows[i / 8 * {_STRIDE} + i % 8] = in[i];
  __syncthreads();
  unsigned int address = __cvta_generic_to_shared(rows + order[threadIdx.x] * {_STRIDE});
  uint32_t r[{count}];
  asm volatile("ldmatrix.{_shape(count, trans)}.shared.b16 {_registers(0, count)}, [%{count}];"
               : {outs} : "r"(address) : "memory");
  for (int i = 0; i < {count}; ++i) out[threadIdx.x * {count} + i] = r[i];"""

    def expect(rows: Array, order: Array) -> Arrays:
        matrices = rows[order].reshape(4, 8, 8)[:count]
        return [_held(matrices, trans)]

    return Program(
        name=f"ldmatrix.x{count}{'.trans' if trans else ''}",
        section=_LDMATRIX,
        source=kernel("const uint16_t* in, const int* order, uint32_t* out", body),
        make=_rows_in_order,
        expect=expect,
    )


def _rows_in_order(rng: np.random.Generator) -> Arrays:
    rows = rng.permutation(1 << 16)[: 32 * 8].astype(np.uint16).reshape(32, 8)
    return [rows, rng.permutation(32).astype(np.int32)]


def _held(matrices: Array, trans: bool) -> Array:
    """Registers (thread, matrix) that hold these (matrix, row, column)."""
    rows = matrices.transpose(0, 2, 1) if trans else matrices
    pairs = rows.astype(np.uint32).reshape(-1, 32, 2)
    return np.ascontiguousarray((pairs[..., 0] | pairs[..., 1] << 16).T)


def _store(count: int, trans: bool) -> Program:
    ins = "".join(f', "r"(in[threadIdx.x * {count} + {i}])' for i in range(count))
    body = f"""
  __shared__ __align__(16) uint16_t rows[32 * {_STRIDE}];
  for (int i = threadIdx.x; i < 32 * {_STRIDE}; i += 32) rows[i] = 0xffff;
  __syncthreads();
  unsigned int address = __cvta_generic_to_shared(rows + order[threadIdx.x] * {_STRIDE});
  asm volatile("stmatrix.{_shape(count, trans)}.shared.b16 [%0], {_registers(1, count)};"
               : : "r"(address){ins} : "memory");
  __syncthreads();
  for (int i = threadIdx.x; i < 32 * {_STRIDE}; i += 32) out[i] = rows[i];"""

    def make(rng: np.random.Generator) -> Arrays:
        words = rng.integers(0, 1 << 32, (32, count), np.uint32)
        return [words, rng.permutation(32).astype(np.int32)]

    def expect(words: Array, order: Array) -> Arrays:
        halves = np.stack([words & 0xFFFF, words >> 16], axis=-1).astype(np.uint16)
        matrices = halves.transpose(1, 0, 2).reshape(count, 8, 8)
        stored = matrices.transpose(0, 2, 1) if trans else matrices
        rows = np.full((32, _STRIDE), 0xFFFF, np.uint16)
        rows[order[: 8 * count], :8] = stored.reshape(-1, 8)
        return [rows]

    return Program(
        name=f"stmatrix.x{count}{'.trans' if trans else ''}",
        section=_STMATRIX,
        source=kernel("const uint32_t* in, const int* order, uint16_t* out", body),
        make=make,
        expect=expect,
        arch="sm_90a",
    )


def _move() -> Program:
    body = """
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
               : "=r"(out[threadIdx.x]) : "r"(in[threadIdx.x]));"""

    def expect(words: Array) -> Arrays:
        halves = np.stack([words & 0xFFFF, words >> 16], axis=-1).reshape(1, 8, 8)
        return [_held(halves, trans=True)[:, 0]]

    return Program(
        name="movmatrix.trans",
        section=_MOVMATRIX,
        source=kernel("const uint32_t* in, uint32_t* out", body),
        make=lambda rng: [rng.integers(0, 1 << 32, 32, np.uint32)],
        expect=expect,
    )


def programs() -> list[Program]:
    """All of them."""
    forms = [(count, trans) for count in (1, 2, 4) for trans in (False, True)]
    return [*(_load(*form) for form in forms), *(_store(*form) for form in forms), _move()]
