"""cp.async.bulk: lines of bytes between global and shared memory, without a thread's hand."""

from __future__ import annotations

import numpy as np

from tests.spaces.emulation.instructions.memory.barriers import called
from tests.spaces.emulation.instructions.program import Array, Arrays, Program, kernel

_SECTION = "PTX ISA 9.1, 9.7.9.25.4.1 cp.async.bulk"


def _load(space: str) -> Program:
    """Three rounds through one barrier: pieces of different sizes, one barrier for two of them."""
    body = f"""
  __shared__ __align__(128) uint8_t tile[1024];
  __shared__ __align__(8) uint64_t bar[1];
  for (int i = threadIdx.x; i < 1024; i += 64) tile[i] = 0xff;
  if (threadIdx.x == 0) {{
    init(bar, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
  }}
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
  __syncthreads();
  for (int round = 0; round < 3; ++round) {{
    if (threadIdx.x == 0) {{
      arrive_expect_tx(bar, 128 + 16 * (round + 1));
      asm volatile("cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        : : "r"((unsigned int)__cvta_generic_to_shared(tile + 256 * round)),
            "l"(in + 512 * round), "r"(128),
            "r"((unsigned int)__cvta_generic_to_shared(bar)) : "memory");
      asm volatile("cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        : : "r"((unsigned int)__cvta_generic_to_shared(tile + 256 * round + 144)),
            "l"(in + 512 * round + 256), "r"(16 * (round + 1)),
            "r"((unsigned int)__cvta_generic_to_shared(bar)) : "memory");
    }}
    wait(bar, round % 2);
    for (int i = threadIdx.x; i < 256; i += 64) out[round * 256 + i] = tile[round * 256 + i];
    __syncthreads();
  }}"""

    def expect(given: Array) -> Arrays:
        wanted = np.full((3, 256), 0xFF, np.uint8)
        for number, line in enumerate(given):
            size = 16 * (number + 1)
            wanted[number, :128] = line[:128]
            wanted[number, 144 : 144 + size] = line[256 : 256 + size]
        return [wanted]

    return Program(
        name=f"cp.async.bulk.{space}.global",
        section=_SECTION,
        source=kernel("const uint8_t* in, uint8_t* out", body, threads=64, before=called(body)),
        make=lambda rng: [rng.integers(0, 255, (3, 512), np.uint8)],
        expect=expect,
        block=(64, 1, 1),
        arch="sm_90a",
    )


def _store() -> Program:
    """What threads wrote is fenced for the asynchronous proxy, then goes out in two groups."""
    body = """
  __shared__ __align__(128) uint8_t tile[512];
  for (int i = threadIdx.x; i < 512; i += 64) tile[i] = in[511 - i];
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int part = 0; part < 2; ++part) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
        : : "l"(out + 512 * part), "r"((unsigned int)__cvta_generic_to_shared(tile + 256 * part)),
            "r"(240) : "memory");
      asm volatile("cp.async.bulk.commit_group;");
    }
    asm volatile("cp.async.bulk.wait_group.read 1;" : : : "memory");
    asm volatile("cp.async.bulk.wait_group 0;" : : : "memory");
  }"""

    def expect(given: Array) -> Arrays:
        wanted = np.full((2, 512), 0xFF, np.uint8)
        wanted[:, :240] = given[::-1].reshape(2, 256)[:, :240]
        return [wanted]

    return Program(
        name="cp.async.bulk.global.shared::cta",
        section=_SECTION + ", 9.7.9.27.2 Bulk and Tensor copy completion instructions",
        source=kernel("const uint8_t* in, uint8_t* out", body, threads=64),
        make=lambda rng: [rng.integers(0, 255, 512, np.uint8)],
        expect=expect,
        block=(64, 1, 1),
        arch="sm_90a",
    )


def programs() -> list[Program]:
    """All of them."""
    return [_load("shared::cluster"), _load("shared::cta"), _store()]
