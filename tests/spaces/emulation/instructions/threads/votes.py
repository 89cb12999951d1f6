"""Votes, reductions over a warp, and barriers of a block that count or are named."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.spaces.emulation.instructions.program import Array, Arrays, Program, kernel

_VOTE = "CUDA C++ Programming Guide 13.0, Warp Vote Functions"
_MATCH = "CUDA C++ Programming Guide 13.0, Warp Match Functions"
_REDUCE = "CUDA C++ Programming Guide 13.0, Warp Reduce Functions"
_SYNC = "CUDA C++ Programming Guide 13.0, Synchronization Functions"
_BAR = "PTX ISA 9.1, 9.7.13.1 bar, barrier"
_ELECT = "PTX ISA 9.1, 9.7.13.14 elect.sync"

_FULL = "0xffffffff"


def _votes() -> Program:
    """Four warps: all, some, none, one of whose lanes say yes."""
    body = f"""
  int t = threadIdx.x;
  out[t] = __ballot_sync({_FULL}, in[t]);
  out[128 + t] = __any_sync({_FULL}, in[t]) != 0;
  out[256 + t] = __all_sync({_FULL}, in[t]) != 0;
  out[384 + t] = __activemask();
  if (t % 32 < 20) {{
    out[512 + t] = __ballot_sync(0x000fffff, in[t]);
  }} else {{
    out[512 + t] = __ballot_sync(0xfff00000, !in[t]);
  }}"""

    def make(rng: np.random.Generator) -> Arrays:
        answers = np.stack([np.ones(32), rng.integers(0, 2, 32), np.zeros(32), np.arange(32) == 13])
        return [answers.astype(np.int32)]

    def expect(given: Array) -> Arrays:
        bits = np.sum(given.astype(np.uint64) << np.arange(32, dtype=np.uint64), axis=1)
        ballot = np.repeat(bits.astype(np.uint32)[:, None], 32, axis=1)
        some = np.repeat(np.max(given, axis=1, keepdims=True), 32, axis=1)
        every = np.repeat(np.min(given, axis=1, keepdims=True), 32, axis=1)
        low = np.uint32((1 << 20) - 1)
        part = np.where(np.arange(32) < 20, ballot & low, ~ballot & ~low)
        mask = np.full((4, 32), 0xFFFFFFFF, np.uint32)
        return [np.stack([ballot, some, every, mask, part]).astype(np.uint32)]

    return Program(
        name="__ballot_sync.__any_sync.__all_sync",
        section=_VOTE,
        source=kernel("const int* in, uint32_t* out", body, threads=128),
        make=make,
        expect=expect,
        block=(128, 1, 1),
    )


def _match() -> Program:
    body = f"""
  out[threadIdx.x] = __match_any_sync({_FULL}, in[threadIdx.x]);"""

    def expect(given: Array) -> Arrays:
        same = (given[:, None] == given[None, :]).astype(np.uint64)
        return [(same << np.arange(32, dtype=np.uint64)).sum(1).astype(np.uint32)]

    return Program(
        name="__match_any_sync",
        section=_MATCH,
        source=kernel("const int* in, uint32_t* out", body),
        make=lambda rng: [rng.integers(0, 6, 32, np.int32)],
        expect=expect,
    )


def _reductions(kind: str, dtype: type[np.integer[Any]], names: tuple[str, ...]) -> Program:
    """In the whole warp, then in two parts of it."""
    calls = "\n".join(
        f"  out[{2 * i} * 32 + t] = __reduce_{name}_sync({_FULL}, in[t]);\n"
        f"  if (t % 2) out[{2 * i + 1} * 32 + t] = __reduce_{name}_sync(0xaaaaaaaau, in[t]);\n"
        f"  else out[{2 * i + 1} * 32 + t] = __reduce_{name}_sync(0x55555555u, in[t]);"
        for i, name in enumerate(names)
    )
    functions = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }

    def make(rng: np.random.Generator) -> Arrays:
        info = np.iinfo(dtype)
        return [rng.integers(info.min, info.max, 32, dtype, endpoint=True)]

    def expect(given: Array) -> Arrays:
        rows = []
        for name in names:
            reduce = functions[name].reduce
            rows.append(np.full(32, reduce(given, dtype=given.dtype)))
            even, odd = (reduce(given[part::2], dtype=given.dtype) for part in (0, 1))
            rows.append(np.where(np.arange(32) % 2, odd, even))
        return [np.stack(rows).astype(dtype)]

    return Program(
        name=f"__reduce_{'_'.join(names)}_sync.{kind}",
        section=_REDUCE,
        source=kernel(f"const {kind}* in, {kind}* out", f"  int t = threadIdx.x;\n{calls}"),
        make=make,
        expect=expect,
    )


def _counted() -> Program:
    body = """
  int t = threadIdx.x;
  out[t] = __syncthreads_count(in[t]);
  out[128 + t] = __syncthreads_and(in[t]) != 0;
  out[256 + t] = __syncthreads_or(in[t] == 2) != 0;"""

    def expect(given: Array) -> Arrays:
        count, every, some = (given != 0).sum(), given.all(), (given == 2).any()
        return [np.repeat(np.array([[count], [every], [some]], np.int32), 128, axis=1)]

    return Program(
        name="__syncthreads_count",
        section=_SYNC,
        source=kernel("const int* in, int* out", body, threads=128),
        make=lambda rng: [rng.integers(0, 3, 128, np.int32)],
        expect=expect,
        block=(128, 1, 1),
    )


def _named() -> Program:
    """Two pairs of warps, each with a barrier of its own; one of each only arrives first."""
    body = """
  __shared__ int line[128];
  int t = threadIdx.x, pair = t / 64, half = t / 32 % 2;
  if (half == 0) {
    line[t] = in[t];
    asm volatile("bar.arrive %0, %1;" : : "r"(1 + pair), "r"(64) : "memory");
    asm volatile("bar.sync %0, %1;" : : "r"(3 + pair), "r"(64) : "memory");
    out[t] = line[t ^ 33];
  } else {
    asm volatile("bar.sync %0, %1;" : : "r"(1 + pair), "r"(64) : "memory");
    out[t] = line[t ^ 35];
    line[t] = in[t] * 3;
    asm volatile("bar.sync %0, 64;" : : "r"(3 + pair) : "memory");
  }"""

    def expect(given: Array) -> Arrays:
        t = np.arange(128)
        first = t // 32 % 2 == 0
        return [np.where(first, given[t ^ 33] * 3, given[t ^ 35]).astype(np.int32)]

    return Program(
        name="bar.sync.bar.arrive",
        section=_BAR,
        source=kernel("const int* in, int* out", body, threads=128),
        make=lambda rng: [rng.integers(0, 1 << 20, 128, np.int32)],
        expect=expect,
        block=(128, 1, 1),
    )


def _warp_sync() -> Program:
    body = """
  __shared__ int line[32];
  int t = threadIdx.x;
  line[t] = in[t];
  __syncwarp();
  int v = line[31 - t];
  __syncwarp();
  line[(t + 7) % 32] = v;
  __syncwarp(0xffffffff);
  out[t] = line[t];"""
    return Program(
        name="__syncwarp",
        section=_SYNC,
        source=kernel("const int* in, int* out", body),
        make=lambda rng: [rng.integers(0, 1 << 20, 32, np.int32)],
        expect=lambda given: [np.roll(given[::-1], 7)],
    )


def _elect() -> Program:
    """Exactly one lane is chosen, and all hear which one; which one is not defined."""
    body = """
  uint32_t leader, chosen;
  asm volatile("{ .reg .pred pd0; elect.sync %0|pd0, %2; selp.b32 %1, 1, 0, pd0; }"
    : "=r"(leader), "=r"(chosen) : "r"(0xffffffff));
  out[threadIdx.x] = __popc(__ballot_sync(0xffffffff, chosen));
  out[32 + threadIdx.x] = chosen == (leader == threadIdx.x);
  out[64 + threadIdx.x] = __shfl_sync(0xffffffff, leader, in[0]) == leader;"""
    return Program(
        name="elect.sync",
        section=_ELECT,
        source=kernel("const int* in, uint32_t* out", body),
        make=lambda rng: [np.array([7], np.int32)],
        expect=lambda _given: [np.ones((3, 32), np.uint32)],
        arch="sm_90a",
    )


def programs() -> list[Program]:
    """All of them."""
    return [
        _votes(),
        _match(),
        _reductions("int", np.int32, ("add", "min", "max")),
        _reductions("uint32_t", np.uint32, ("add", "min", "max")),
        _reductions("uint32_t", np.uint32, ("and", "or", "xor")),
        _counted(),
        _named(),
        _warp_sync(),
        _elect(),
    ]
