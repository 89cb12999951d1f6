"""Programs of instructions on the emulated device."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from spaces.emulation.buffers import Zoned
from spaces.emulation.compile import compile_kernels
from spaces.emulation.library import load_kernels
from tests.spaces.emulation.instructions.program import Array, Arrays, Dim3, TensorMap

_ARCHITECTURE = 90
WAIT_FOR_NOBODY = """
  __shared__ uint64_t nobodys[1];
  unsigned place = __cvta_generic_to_shared(nobodys);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 2;" :: "r"(place));
  __syncthreads();
  asm volatile("{.reg .pred p;\\nLOOP:\\nmbarrier.try_wait.parity.shared.b64 p, [%0], 0;\\n"
    "@!p bra LOOP;\\n}" :: "r"(place));"""
"""Code of a kernel that waits for ever at an mbarrier."""
TAGS = (
    *(f"blockIdx.{d}" for d in "xyz"),
    *(f"threadIdx.{d}" for d in "xyz"),
    "tirx.use_dyn_shared_memory",
)
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_TFLOAT32 = 11
"""CUDA driver API, `CUtensorMapDataType`."""


def run_emulated(
    source: str,
    kernel: str,
    *,
    grid: Dim3,
    block: Dim3,
    shared_bytes: int,
    buffers: Sequence[Array],
    tensor_maps: Sequence[TensorMap] = (),
    fast_math: bool = False,
) -> Arrays:
    """See `tests.spaces.emulation.instructions.program.RunProgram`."""
    module = load_kernels(compile_kernels(source, _ARCHITECTURE))
    zoned = [Zoned(buffer) for buffer in buffers]
    places = [ctypes.c_void_p(one.array.ctypes.data) for one in zoned]
    room = np.zeros(_MAP_BYTES * len(tensor_maps) + _MAP_ALIGNMENT, np.uint8)
    first = -(-room.ctypes.data // _MAP_ALIGNMENT) * _MAP_ALIGNMENT
    maps = [ctypes.c_void_p(first + i * _MAP_BYTES) for i in range(len(tensor_maps))]
    for place, asked in zip(maps, tensor_maps, strict=True):
        rounds = asked.dtype == "tfloat32"
        module["runtime.cuTensorMapEncodeTiled"](
            place,
            "float32" if rounds else asked.dtype,
            len(asked.shape),
            places[asked.buffer],
            *asked.shape,
            *asked.strides_bytes,
            *asked.box,
            *(1 for _ in asked.shape),
            *(0, _SWIZZLES[asked.swizzle_bytes], 0, 0),
            *([_TFLOAT32] if rounds else []),
        )
    module[kernel](*maps, *places, *grid, *block, shared_bytes, ",".join(TAGS))
    for one in zoned:
        assert not one.damage()
    return [one.array.copy() for one in zoned]
