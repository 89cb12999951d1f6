"""cp.async: copies from global to shared memory that land at a wait for their group."""

from __future__ import annotations

import numpy as np

from tests.spaces.emulation.instructions.program import Array, Arrays, Program, kernel

_COPY = "PTX ISA 9.1, 9.7.9.25.3.1 cp.async"
_GROUPS = "PTX ISA 9.1, 9.7.9.25.3.2 cp.async.commit_group and .3 cp.async.wait_group"

_COMMIT = 'asm volatile("cp.async.commit_group;");'


def _wait(groups: int) -> str:
    return f'asm volatile("cp.async.wait_group {groups};" : : : "memory");'


def _copy(cache: str, size: int, *, to: str, source: str, source_size: str = "") -> str:
    extra, operand = (f', "r"({source_size})', ", %2") if source_size else ("", "")
    return (
        f'asm volatile("cp.async.{cache}.shared.global [%0], [%1], {size}{operand};"\n'
        f'      : : "r"((unsigned int)__cvta_generic_to_shared({to})), "l"({source}){extra}'
        ' : "memory");'
    )


def _bytes(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(0, 255, shape, np.uint8)


def _plain(cache: str, size: int) -> Program:
    """Each thread copies its part, to a place that is not its own."""
    to, source = f"tile + (63 - threadIdx.x) * {size}", f"in + threadIdx.x * {size}"
    body = f"""
  __shared__ __align__(16) uint8_t tile[64 * {size}];
  {_copy(cache, size, to=to, source=source)}
  {_COMMIT}
  {_wait(0)}
  __syncthreads();
  for (int i = threadIdx.x; i < 64 * {size}; i += 64) out[i] = tile[i];"""
    return Program(
        name=f"cp.async.{cache}.{size}",
        section=_COPY,
        source=kernel("const uint8_t* in, uint8_t* out", body, threads=64),
        make=lambda rng: [_bytes(rng, 64, size)],
        expect=lambda given: [np.ascontiguousarray(given[::-1])],
        block=(64, 1, 1),
    )


def _zero_fill(cache: str, size: int) -> Program:
    """Thread t copies t modulo (size + 1) bytes; the others of its part become zero."""
    to, source = f"tile + threadIdx.x * {size}", f"in + threadIdx.x * {size}"
    body = f"""
  __shared__ __align__(16) uint8_t tile[64 * {size}];
  for (int i = threadIdx.x; i < 64 * {size}; i += 64) tile[i] = 0xff;
  __syncthreads();
  uint32_t count = threadIdx.x % {size + 1};
  {_copy(cache, size, to=to, source=source, source_size="count")}
  {_COMMIT}
  {_wait(0)}
  __syncthreads();
  for (int i = threadIdx.x; i < 64 * {size}; i += 64) out[i] = tile[i];"""

    def expect(given: Array) -> Arrays:
        count = np.arange(64)[:, None] % (size + 1)
        return [np.where(np.arange(size) < count, given, 0).astype(np.uint8)]

    return Program(
        name=f"cp.async.{cache}.{size}.src-size",
        section=_COPY,
        source=kernel("const uint8_t* in, uint8_t* out", body, threads=64),
        make=lambda rng: [_bytes(rng, 64, size)],
        expect=expect,
        block=(64, 1, 1),
    )


def _predicated(cache: str, size: int) -> Program:
    """As TVM's pass for asynchronous copies writes it: zeros where the predicate is false."""
    words = size // 4
    vector = "" if words == 1 else f".v{words}"
    zeros = "{" + ", ".join(["%4"] * words) + "}"
    body = f"""
  __shared__ __align__(16) uint8_t tile[64 * {size}];
  for (int i = threadIdx.x; i < 64 * {size}; i += 64) tile[i] = 0xff;
  __syncthreads();
  unsigned int address = __cvta_generic_to_shared(tile + threadIdx.x * {size});
  int predicate = taken[threadIdx.x];
  __asm__ __volatile__(
    "{{\\n"
    " .reg .pred p;\\n"
    " setp.eq.u32 p, %3, 1;\\n"
    " @p cp.async.{cache}.shared.global [%0], [%1], %2;\\n"
    " @!p st.shared{vector}.u32 [%0], {zeros};\\n"
    "}}\\n"
    : : "r"(address), "l"(in + threadIdx.x * {size}), "n"({size}), "r"(predicate), "r"(0));
  {_COMMIT}
  {_wait(0)}
  __syncthreads();
  for (int i = threadIdx.x; i < 64 * {size}; i += 64) out[i] = tile[i];"""

    def expect(given: Array, taken: Array) -> Arrays:
        return [np.where(taken[:, None] == 1, given, 0).astype(np.uint8)]

    return Program(
        name=f"cp.async.{cache}.{size}.predicate",
        section=_COPY,
        source=kernel("const uint8_t* in, const int* taken, uint8_t* out", body, threads=64),
        make=lambda rng: [_bytes(rng, 64, size), rng.integers(0, 2, 64, np.int32)],
        expect=expect,
        block=(64, 1, 1),
    )


def _groups(name: str, last_wait: str) -> Program:
    """Four groups; after each wait, what must have landed is read, the oldest first.

    Each stage is used again for a later group, so one that lands too late overwrites its
    successor, and one that is read too early holds what was there before.
    """
    copies = []
    for group in range(4):
        to = f"tile + ({group} * 64 + 63 - threadIdx.x) * 16"
        copy = _copy("cg", 16, to=to, source=f"in + ({group} * 64 + threadIdx.x) * 16")
        copies.append(f"  {copy}\n  {_COMMIT}")
    reads = []
    for group in range(4):
        wait = _wait(3 - group) if group < 3 else last_wait
        reads.append(
            f"  {wait}\n  __syncthreads();\n  for (int i = threadIdx.x; i < 1024; i += 64)"
            f" out[{group} * 1024 + i] = tile[{group} * 1024 + i];"
        )
    body = "\n".join(
        [
            "  __shared__ __align__(16) uint8_t tile[4096];",
            "  for (int i = threadIdx.x; i < 4096; i += 64) tile[i] = 0xff;",
            "  __syncthreads();",
            *copies,
            *reads,
        ]
    )
    return Program(
        name=name,
        section=_GROUPS,
        source=kernel("const uint8_t* in, uint8_t* out", body, threads=64),
        make=lambda rng: [_bytes(rng, 4, 64, 16)],
        expect=lambda given: [np.ascontiguousarray(given[:, ::-1])],
        block=(64, 1, 1),
    )


def _pipeline() -> Program:
    """Nine steps through three stages, as loops are pipelined: a stage is filled again while others
    are in flight, and an empty group is committed where nothing is left to fetch."""
    copy = _copy(
        "ca",
        4,
        to="tile + step % 3 * 64 + (threadIdx.x ^ 1)",
        source="in + step * 64 + threadIdx.x",
    )
    body = f"""
  __shared__ __align__(16) uint32_t tile[3 * 64];
  for (int i = threadIdx.x; i < 3 * 64; i += 64) tile[i] = 0xffffffff;
  __syncthreads();
  for (int step = 0; step < 2; ++step) {{
    {copy}
    {_COMMIT}
  }}
  uint32_t sum = 0;
  for (int now = 0; now < 9; ++now) {{
    __syncthreads();
    int step = now + 2;
    if (step < 9) {{
      {copy}
    }}
    {_COMMIT}
    {_wait(2)}
    __syncthreads();
    sum = sum * 3 + tile[now % 3 * 64 + threadIdx.x];
  }}
  out[threadIdx.x] = sum;"""

    def expect(given: Array) -> Arrays:
        total = np.zeros(64, np.uint32)
        for row in given:
            total = total * np.uint32(3) + row[np.arange(64) ^ 1]
        return [total]

    return Program(
        name="cp.async.pipeline",
        section=_GROUPS,
        source=kernel("const uint32_t* in, uint32_t* out", body, threads=64),
        make=lambda rng: [rng.integers(0, 1 << 32, (9, 64), np.uint32)],
        expect=expect,
        block=(64, 1, 1),
    )


def programs() -> list[Program]:
    """All of them."""
    sizes = [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)]
    return [
        *(_plain(*size) for size in sizes),
        *(_zero_fill(*size) for size in sizes),
        *(_predicated(*size) for size in (("ca", 4), ("ca", 8), ("cg", 16))),
        _groups("cp.async.wait_group", _wait(0)),
        _groups("cp.async.wait_all", 'asm volatile("cp.async.wait_all;" : : : "memory");'),
        _pipeline(),
    ]
