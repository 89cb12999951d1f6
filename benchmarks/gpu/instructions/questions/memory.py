"""What copies of tensors and atomic functions do where manuals say nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.gpu.instructions.questions.question import Question, ask
from tests.spaces.emulation.instructions.memory.barriers import called
from tests.spaces.emulation.instructions.program import Arrays, TensorMap, kernel


def _narrow_box() -> Question:
    """A box whose rows are shorter than the swizzle: what is the distance of two rows?"""
    body = """
  extern __shared__ __align__(1024) uint8_t tile[];
  uint64_t* bar = (uint64_t*)(tile + 1024);
  for (int i = threadIdx.x; i < 1024; i += 32) tile[i] = 0xff;
  if (threadIdx.x == 0) init(bar, 1);
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    arrive_expect_tx(bar, 512);
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];"
      : : "r"((unsigned int)__cvta_generic_to_shared(tile)), "l"(&map), "r"(0), "r"(0),
          "r"((unsigned int)__cvta_generic_to_shared(bar)) : "memory");
  }
  wait(bar, 0);
  for (int i = threadIdx.x; i < 1024; i += 32) out[i] = tile[i];"""

    def make(rng: np.random.Generator) -> Arrays:
        row, byte = np.indices((8, 64))
        return [(16 * row + byte // 4).astype(np.uint8)]

    def answer(_inputs: Arrays, outputs: Arrays) -> dict[str, Any]:
        image = outputs[0]
        first = {int(v): int(np.flatnonzero(image == v)[0]) for v in range(0, 128, 4) if v in image}
        return {"first byte of 16 by row * 4 + chunk": [first.get(v, -1) for v in range(0, 128, 4)]}

    return Question(
        "where a tensor copy with the 128-byte swizzle puts rows of 64 bytes",
        ask(
            "narrow-box",
            kernel(
                "const __grid_constant__ CUtensorMap map, const void*, uint8_t* out",
                body,
                before=f"#include <cuda.h>\n{called(body)}",
            ),
            make,
            [np.zeros(1024, np.uint8)],
            shared_bytes=1032,
            arch="sm_90a",
            tensor_maps=(TensorMap(0, "uint8", (64, 8), (64,), (64, 8), 128),),
        ),
        answer,
    )


def _atomic_subnormals() -> Question:
    body = """
  __shared__ float here[1];
  here[0] = in[0];
  out[0] = in[0];
  out[2] = 0.0f;
  atomicAdd(out, in[0]);
  atomicAdd(here, in[0]);
  out[1] = here[0];
  atomicAdd(out + 2, in[0]);"""

    def answer(inputs: Arrays, outputs: Arrays) -> dict[str, Any]:
        names = ("global, to a subnormal", "shared, to a subnormal", "global, to zero")
        wanted = (2, 2, 1)
        return {
            name: "kept" if value == times * inputs[0][0] else f"{value!s}"
            for name, value, times in zip(names, outputs[0], wanted, strict=True)
        }

    return Question(
        "whether atomicAdd of float keeps subnormal numbers",
        ask(
            "atomic.subnormals",
            kernel("const float* in, float* out", body, threads=1),
            lambda rng: [np.array([2.0**-140], np.float32)],
            [np.zeros(3, np.float32)],
            block=(1, 1, 1),
        ),
        answer,
    )


def _shared_base() -> Question:
    """Swizzles depend on addresses, so where dynamic shared memory begins is of use."""
    body = """
  extern __shared__ __align__(1024) uint8_t dynamic[];
  __shared__ __align__(8) uint64_t fixed[3];
  fixed[threadIdx.x % 3] = in[0];
  dynamic[threadIdx.x] = in[0];
  out[0] = __cvta_generic_to_shared(dynamic);
  out[1] = __cvta_generic_to_shared(fixed);"""
    names = ("dynamic, aligned to 1024, beside 24 static bytes", "static")
    return Question(
        "where shared memory begins",
        ask(
            "shared.base",
            kernel("const uint32_t* in, uint32_t* out", body),
            lambda rng: [np.array([1], np.uint32)],
            [np.zeros(2, np.uint32)],
            shared_bytes=4096,
        ),
        lambda _inputs, outputs: {n: int(v) for n, v in zip(names, outputs[0], strict=True)},
    )


def questions() -> list[Question]:
    """All of them."""
    return [_narrow_box(), _shared_base(), _atomic_subnormals()]
