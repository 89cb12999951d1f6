"""Clusters of blocks: mbarriers of other blocks, and copies to several blocks."""

from __future__ import annotations

import numpy as np

from tests.spaces.emulation.instructions.memory.barriers import called
from tests.spaces.emulation.instructions.program import Array, Arrays, Program, TensorMap, kernel
from tests.spaces.emulation.instructions.swizzle import place, swizzle

_ARRIVE = (
    "PTX ISA 9.1, 9.7.13.15.13 mbarrier.arrive (.shared::cluster), 9.7.9.23 mapa,"
    " 9.7.13.3 barrier.cluster"
)
_MULTICAST = "PTX ISA 9.1, 9.7.9.27.1.2 cp.async.bulk.tensor (.multicast::cluster)"
_BLOCKS, _CLUSTERS = 4, 2
_BEGIN = """
  unsigned rank, number;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(number));
"""
_MEET = """
  asm volatile("barrier.cluster.arrive.release;" : : : "memory");
  asm volatile("barrier.cluster.wait.acquire;" : : : "memory");
"""
_FENCE = 'asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");'


def _arrivals() -> Program:
    """Blocks arrive at each other's mbarriers so and so often; each waits for as many."""
    body = f"""
  __shared__ __align__(8) uint64_t bar[1];{_BEGIN}
  if (threadIdx.x == 0) {{
    uint32_t all = 0;
    for (int from = 0; from < {_BLOCKS}; ++from) all += counts[from * {_BLOCKS} + rank];
    init(bar, all);
    {_FENCE}
  }}{_MEET}
  if (threadIdx.x < {_BLOCKS}) {{
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there)
      : "r"((unsigned int)__cvta_generic_to_shared(bar)), "r"(threadIdx.x));
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0], %1;"
      : : "r"(there), "r"(counts[rank * {_BLOCKS} + threadIdx.x]) : "memory");
  }}
  wait(bar, 0);
  if (threadIdx.x == 0) {{
    out[4 * blockIdx.x] = rank;
    out[4 * blockIdx.x + 1] = number;
    out[4 * blockIdx.x + 2] = test_parity(bar, 0);
    out[4 * blockIdx.x + 3] = test_parity(bar, 1);
  }}{_MEET}"""

    def expect(_counts: Array) -> Arrays:
        blocks = range(_BLOCKS * _CLUSTERS)
        return [np.array([[b % _BLOCKS, b // _BLOCKS, 1, 0] for b in blocks], np.uint32)]

    return Program(
        name="mbarrier.arrive.shared::cluster",
        section=_ARRIVE,
        source=kernel(
            "const uint32_t* counts, uint32_t* out", body, before=called(body), cluster=_BLOCKS
        ),
        make=lambda rng: [rng.permutation(_BLOCKS**2).reshape(_BLOCKS, -1).astype("uint32") + 1],
        expect=expect,
        grid=(_BLOCKS * _CLUSTERS, 1, 1),
        arch="sm_90a",
    )


def _multicast() -> Program:
    """Each block has a box copied to the blocks of its mask, each box to a place of its own; both
    the elements and the bytes that are counted come to the same place in each block."""
    columns, rows, masks = 64, 8, (0b1111, 0b0101, 0b1010, 0b0001)
    size = columns * rows * 2
    body = f"""
  extern __shared__ __align__(1024) uint8_t tile[];
  uint64_t* bar = (uint64_t*)(tile + {_BLOCKS * size});{_BEGIN}
  for (int i = threadIdx.x; i < {_BLOCKS * size}; i += 32) tile[i] = 0xff;
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
  if (threadIdx.x == 0) {{
    init(bar, 1);
    {_FENCE}
  }}{_MEET}
  if (threadIdx.x == 0) {{
    uint32_t bytes = 0;
    for (int from = 0; from < {_BLOCKS}; ++from) bytes += (masks[from] >> rank & 1) * {size};
    arrive_expect_tx(bar, bytes);
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {{%2, %3}}], [%4], %5;"
      : : "r"((unsigned int)__cvta_generic_to_shared(tile + rank * {size})), "l"(&map), "r"(0),
          "r"((int)(rank * {rows})), "r"((unsigned int)__cvta_generic_to_shared(bar)),
          "h"((uint16_t)masks[rank]) : "memory");
  }}
  wait(bar, 0);
  for (int i = threadIdx.x; i < {_BLOCKS * size}; i += 32)
    out[blockIdx.x * {_BLOCKS * size} + i] = tile[i];{_MEET}"""

    def expect(tensor: Array, _masks: Array) -> Arrays:
        boxes = tensor.reshape(_BLOCKS, rows, columns).view(np.uint8).reshape(_BLOCKS, -1)
        placed = [place(box, swizzle(np.arange(size), 128), size) for box in boxes]
        empty = np.full(size, 0xFF, np.uint8)
        of_block = [
            np.stack([placed[i] if mask >> rank & 1 else empty for i, mask in enumerate(masks)])
            for rank in range(_BLOCKS)
        ]
        return [np.stack(of_block * _CLUSTERS)]

    def make(rng: np.random.Generator) -> Arrays:
        values = rng.integers(1, 256, (_BLOCKS * rows, columns))
        return [values.astype(np.float16), np.array(masks, np.uint32)]

    return Program(
        name="cp.async.bulk.tensor.2d.multicast::cluster",
        section=_MULTICAST,
        source=kernel(
            "const __grid_constant__ CUtensorMap map, const void*, const uint32_t* masks,"
            " uint8_t* out",
            body,
            before=f"#include <cuda.h>\n{called(body)}",
            cluster=_BLOCKS,
        ),
        make=make,
        expect=expect,
        grid=(_BLOCKS * _CLUSTERS, 1, 1),
        shared_bytes=_BLOCKS * size + 8,
        arch="sm_90a",
        tensor_maps=(
            TensorMap(
                0, "float16", (columns, _BLOCKS * rows), (2 * columns,), (columns, rows), 128
            ),
        ),
    )


def programs() -> list[Program]:
    """All of this file."""
    return [_arrivals(), _multicast()]
