"""Arrivals at mbarriers behind a thread's own copies, on the emulated device."""

from __future__ import annotations

import numpy as np

from tests.spaces.emulation.run_program import run_emulated

_SOURCE = """
extern "C" __global__ void __launch_bounds__(32) twice(const uint8_t* in, uint8_t* out) {
  __shared__ __align__(16) uint8_t tile[1024];
  __shared__ __align__(8) uint64_t bars[2];
  unsigned int at[2] = {(unsigned int)__cvta_generic_to_shared(bars),
                        (unsigned int)__cvta_generic_to_shared(bars + 1)};
  unsigned int to = (unsigned int)__cvta_generic_to_shared(tile + threadIdx.x * 16);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i)
      asm volatile("mbarrier.init.shared.b64 [%0], 32;" :: "r"(at[i]));
  }
  __syncthreads();
  for (int turn = 0; turn < 2; ++turn) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
      :: "r"(to + turn * 512), "l"(in + turn * 512 + threadIdx.x * 16) : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(at[turn]) : "memory");
    asm volatile("{.reg .pred p;\\nL:\\nmbarrier.try_wait.parity.shared.b64 p, [%0], 0;\\n"
      "@!p bra L;\\n}" :: "r"(at[turn]));
    if (turn == 0) {
      for (int i = 0; i < 16; ++i) tile[threadIdx.x * 16 + i] = 7;
    }
  }
  for (int i = 0; i < 32; ++i) out[threadIdx.x * 32 + i] = tile[threadIdx.x * 32 + i];
}
"""


def test_a_copy_lands_once_however_many_arrivals_are_behind_it() -> None:
    """What was copied for the first arrival is written anew before the second one."""
    given = np.random.default_rng(0).integers(0, 255, 1024).astype(np.uint8)
    buffers = [given, np.zeros(1024, np.uint8)]
    found = run_emulated(
        _SOURCE, "twice", grid=(1, 1, 1), block=(32, 1, 1), shared_bytes=0, buffers=buffers
    )[1]
    assert (found[:512] == 7).all()
    assert (found[512:] == given[512:]).all()
