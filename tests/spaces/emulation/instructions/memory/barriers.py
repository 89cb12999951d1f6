"""mbarrier: phases that end when all expected arrivals and bytes are there."""

from __future__ import annotations

import re

import numpy as np

from tests.spaces.emulation.instructions.program import Array, Arrays, Program, kernel

_SECTION = "PTX ISA 9.1, 9.7.13.15.{}"

FUNCTIONS = """
__forceinline__ __device__ void init(uint64_t* bar, uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;"
    : : "r"((unsigned int)__cvta_generic_to_shared(bar)), "r"(count) : "memory");
}
__forceinline__ __device__ void arrive(uint64_t* bar, uint32_t count) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0], %1;"
    : : "r"((unsigned int)__cvta_generic_to_shared(bar)), "r"(count) : "memory");
}
__forceinline__ __device__ void arrive_expect_tx(uint64_t* bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
    : : "r"((unsigned int)__cvta_generic_to_shared(bar)), "r"(bytes) : "memory");
}
__forceinline__ __device__ uint32_t test_parity(uint64_t* bar, uint32_t parity) {
  uint32_t done;
  asm volatile("{ .reg .pred pd0; mbarrier.test_wait.parity.shared.b64 pd0, [%1], %2; "
               "selp.b32 %0, 1, 0, pd0; }"
    : "=r"(done) : "r"((unsigned int)__cvta_generic_to_shared(bar)), "r"(parity) : "memory");
  return done;
}
__forceinline__ __device__ uint32_t tested(uint64_t* bar, uint64_t state) {
  uint32_t done;
  asm volatile("{ .reg .pred pd0; mbarrier.test_wait.shared.b64 pd0, [%1], %2; "
               "selp.b32 %0, 1, 0, pd0; }"
    : "=r"(done) : "r"((unsigned int)__cvta_generic_to_shared(bar)), "l"(state) : "memory");
  return done;
}
__forceinline__ __device__ void wait(uint64_t* bar, int parity) {
  asm volatile("{\\n"
    ".reg .pred P1;\\n"
    "LAB_WAIT:\\n"
    "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 P1, [%0], %1, %2;\\n"
    "@P1 bra.uni DONE;\\n"
    "bra.uni LAB_WAIT;\\n"
    "DONE:\\n"
    "}\\n"
    : : "r"((unsigned int)__cvta_generic_to_shared(bar)), "r"(parity), "r"(0x989680) : "memory");
}
"""
"""One function for each instruction; the wait is the loop that TVM emits."""


def called(body: str) -> str:
    """Those of `FUNCTIONS` that the body calls: others may need a newer architecture."""
    parts = [f"__forceinline__{part}" for part in FUNCTIONS.split("__forceinline__")[1:]]
    names = [part.split("(")[0].split()[-1] for part in parts]
    return "\n".join(
        part
        for part, name in zip(parts, names, strict=True)
        if re.search(rf"(?<![\w.]){name}\(", body)
    )


def _scripted(name: str, title: str, steps: str, answers: list[int], *, arch: str) -> Program:
    """One thread acts and asks; `answers` are what the questions (ASK) give."""
    asked = steps.count("ASK")
    assert asked == len(answers)
    for number in range(asked):
        steps = steps.replace("ASK", f"out[{number}] =", 1)
    body = f"""
  __shared__ __align__(8) uint64_t bar[1];
  if (threadIdx.x == 0) {{
{steps}
  }}"""
    return Program(
        name=name,
        section=_SECTION.format(title),
        source=kernel("const uint32_t* counts, uint32_t* out", body, before=called(body)),
        make=lambda rng: [np.array([3, 2, 1], np.uint32)],
        expect=lambda counts: [np.array(answers, np.uint32)],
        arch=arch,
    )


_PHASES = """
    init(bar, counts[0]);
    ASK test_parity(bar, 0);
    ASK test_parity(bar, 1);
    arrive(bar, counts[2]);
    ASK test_parity(bar, 0);
    arrive(bar, counts[1]);
    ASK test_parity(bar, 0);
    ASK test_parity(bar, 1);
    arrive(bar, 1);
    arrive(bar, 1);
    ASK test_parity(bar, 1);
    arrive(bar, 1);
    ASK test_parity(bar, 1);
    ASK test_parity(bar, 0);
    arrive(bar, 3);
    ASK test_parity(bar, 0);"""
_PHASES_GIVE = [0, 1, 0, 1, 0, 0, 1, 0, 1]

_BYTES = """
    init(bar, 1);
    arrive_expect_tx(bar, 48);
    ASK test_parity(bar, 0);
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
      : : "r"((unsigned int)__cvta_generic_to_shared(bar)), "r"(16) : "memory");
    ASK test_parity(bar, 0);
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
      : : "r"((unsigned int)__cvta_generic_to_shared(bar)), "r"(32) : "memory");
    ASK test_parity(bar, 0);
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
      : : "r"((unsigned int)__cvta_generic_to_shared(bar)), "r"(64) : "memory");
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
      : : "r"((unsigned int)__cvta_generic_to_shared(bar)), "r"(64) : "memory");
    ASK test_parity(bar, 1);
    arrive(bar, 1);
    ASK test_parity(bar, 1);"""
_BYTES_GIVE = [0, 0, 1, 0, 1]

_STATES = """
    init(bar, 2);
    uint64_t first, second;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];"
      : "=l"(first) : "r"((unsigned int)__cvta_generic_to_shared(bar)) : "memory");
    ASK tested(bar, first);
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];"
      : "=l"(second) : "r"((unsigned int)__cvta_generic_to_shared(bar)) : "memory");
    ASK tested(bar, first);
    ASK tested(bar, second);"""
_STATES_GIVE = [0, 1, 1]

_PENDING = """
    init(bar, 4);
    uint64_t first, second;
    uint32_t pending;
    asm volatile("mbarrier.arrive.noComplete.shared.b64 %0, [%1], 1;"
      : "=l"(first) : "r"((unsigned int)__cvta_generic_to_shared(bar)) : "memory");
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(pending) : "l"(first));
    ASK pending;
    asm volatile("mbarrier.arrive.noComplete.shared.b64 %0, [%1], 2;"
      : "=l"(second) : "r"((unsigned int)__cvta_generic_to_shared(bar)) : "memory");
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(pending) : "l"(second));
    ASK pending;
    ASK tested(bar, second);
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];"
      : "=l"(second) : "r"((unsigned int)__cvta_generic_to_shared(bar)) : "memory");
    ASK tested(bar, first);"""
_PENDING_GIVE = [4, 3, 0, 1]


def _ring() -> Program:
    """A producer warp and three consumer warps, ten rounds through two stages: what is full and
    what is empty are barriers, whose parities change every second round."""
    body = """
  __shared__ __align__(8) uint64_t full[2], empty[2];
  __shared__ uint32_t stage[2][32];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) { init(full + i, 32); init(empty + i, 3); }
  }
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
  __syncthreads();
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 0) {
    for (int k = 0; k < 10; ++k) {
      wait(empty + k % 2, ((k / 2) % 2) ^ 1);
      stage[k % 2][lane ^ 5] = in[k * 32 + lane];
      arrive(full + k % 2, 1);
    }
  } else {
    uint32_t sum = 0;
    for (int k = 0; k < 10; ++k) {
      wait(full + k % 2, (k / 2) % 2);
      sum = sum * 3 + stage[k % 2][(lane + warp) % 32];
      __syncwarp();
      if (lane == 0) arrive(empty + k % 2, 1);
    }
    out[(warp - 1) * 32 + lane] = sum;
  }"""

    def expect(given: Array) -> Arrays:
        lane = np.arange(32)
        sums = np.zeros((3, 32), np.uint32)
        for row in given:
            for warp in range(3):
                seen = row[(lane + warp + 1) % 32 ^ 5]
                sums[warp] = sums[warp] * np.uint32(3) + seen
        return [sums]

    return Program(
        name="mbarrier.try_wait.parity",
        section=_SECTION.format(
            "16 mbarrier.try_wait, .13 mbarrier.arrive, 9.7.13.4 fence.mbarrier_init"
        ),
        source=kernel(
            "const uint32_t* in, uint32_t* out",
            body,
            threads=128,
            before=called(body),
        ),
        make=lambda rng: [rng.integers(0, 1 << 32, (10, 32), np.uint32)],
        expect=expect,
        block=(128, 1, 1),
        arch="sm_90a",
    )


def _of_copies() -> Program:
    """cp.async.mbarrier.arrive: the barrier hears of each thread's copies when they land."""
    body = """
  __shared__ __align__(16) uint8_t tile[1024];
  __shared__ __align__(8) uint64_t bar[1];
  unsigned int address = __cvta_generic_to_shared(bar);
  if (threadIdx.x == 0) init(bar, 64);
  __syncthreads();
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
    : : "r"((unsigned int)__cvta_generic_to_shared(tile + threadIdx.x * 16)),
        "l"(in + (63 - threadIdx.x) * 16) : "memory");
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" : : "r"(address) : "memory");
  while (!test_parity(bar, 0)) {}
  for (int i = threadIdx.x; i < 1024; i += 64) out[i] = tile[i];"""
    return Program(
        name="cp.async.mbarrier.arrive.noinc",
        section=_SECTION.format("15 cp.async.mbarrier.arrive"),
        source=kernel(
            "const uint8_t* in, uint8_t* out",
            body,
            threads=64,
            before=called(body),
        ),
        make=lambda rng: [rng.integers(0, 255, (64, 16), np.uint8)],
        expect=lambda given: [np.ascontiguousarray(given[::-1])],
        block=(64, 1, 1),
    )


def programs() -> list[Program]:
    """All of them."""
    return [
        _scripted(
            "mbarrier.test_wait.parity",
            "16 mbarrier.test_wait / mbarrier.try_wait (parity)",
            _PHASES,
            _PHASES_GIVE,
            arch="sm_90a",
        ),
        _scripted(
            "mbarrier.expect_tx",
            "5 Tracking asynchronous operations, .11 mbarrier.expect_tx, .12 mbarrier.complete_tx",
            _BYTES,
            _BYTES_GIVE,
            arch="sm_90a",
        ),
        _scripted(
            "mbarrier.test_wait",
            "16 mbarrier.test_wait / mbarrier.try_wait (state), .13 mbarrier.arrive",
            _STATES,
            _STATES_GIVE,
            arch="sm_80",
        ),
        _scripted(
            "mbarrier.pending_count",
            "17 mbarrier.pending_count, .13 mbarrier.arrive (noComplete)",
            _PENDING,
            _PENDING_GIVE,
            arch="sm_80",
        ),
        _ring(),
        _of_copies(),
    ]
