"""CUDA's driver, called by ctypes: a kernel of a cubin, run once, with numpy's arrays.

No package is needed beside numpy. Kernels are launched and waited for one by one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from tests.spaces.emulation.instructions.program import Array, Arrays, Dim3, TensorMap

_MAX_DYNAMIC_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_TENSOR_TYPES = {"uint8": 0, "uint16": 1, "uint32": 2, "int32": 3, "float16": 6, "float32": 7}
_TENSOR_TYPES |= {"bfloat16": 9, "tfloat32": 11}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_MAJOR, _MINOR, _PROCESSORS, _CLOCK_KHZ = 75, 76, 16, 13  # CUdevice_attribute


class DriverError(Exception):
    """A call of the driver that failed: its name, and the driver's words."""


class Driver:
    """The first device, with its primary context.

    Args:
        cuda: the library's functions; those of libcuda.so.1 otherwise.

    Raises:
        DriverError: There is no driver or no device, or it cannot be used.
    """

    def __init__(self, cuda: Any = None) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1") if cuda is None else cuda
        except OSError as error:
            raise DriverError(f"no driver: {error}") from error
        self._call("cuInit", c_uint(0))
        device, context = c_int(), c_void_p()
        self._call("cuDeviceGet", byref(device), c_int(0))
        self._device = device
        self._call("cuDevicePrimaryCtxRetain", byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def about(self) -> dict[str, Any]:
        """The device's name, its compute capability, and the driver's version."""
        name = ctypes.create_string_buffer(256)
        version = c_int()
        self._call("cuDeviceGetName", name, c_int(256), self._device)
        self._call("cuDriverGetVersion", byref(version))
        return {
            "device": name.value.decode(),
            "capability": f"{self._attribute(_MAJOR)}.{self._attribute(_MINOR)}",
            "multiprocessors": self._attribute(_PROCESSORS),
            "clock_khz": self._attribute(_CLOCK_KHZ),
            "cuda_of_driver": f"{version.value // 1000}.{version.value % 1000 // 10}",
        }

    def run(
        self,
        cubin: Path,
        kernel: str,
        *,
        grid: Dim3,
        block: Dim3,
        shared_bytes: int,
        buffers: Sequence[Array],
        tensor_maps: Sequence[TensorMap] = (),
    ) -> Arrays:
        """All buffers as they are afterwards (`tests...program.RunProgram` says more).

        Raises:
            DriverError: Whatever the driver says; after most errors of a kernel this process can
                use the device no more.
        """
        module, function = c_void_p(), c_void_p()
        self._call("cuModuleLoadData", byref(module), c_char_p(cubin.read_bytes()))
        self._call("cuModuleGetFunction", byref(function), module, c_char_p(kernel.encode()))
        if shared_bytes:
            self._call(
                "cuFuncSetAttribute",
                function,
                c_int(_MAX_DYNAMIC_SHARED_BYTES),
                c_int(shared_bytes),
            )
        with self._on_device(buffers) as pointers:
            maps = [self._encode(tensor, pointers[tensor.buffer]) for tensor in tensor_maps]
            values = [*maps, *pointers]
            parameters = (c_void_p * len(values))(
                *[ctypes.cast(byref(value), c_void_p) for value in values]
            )
            sizes = [c_uint(n) for n in (*grid, *block, shared_bytes)]
            self._call("cuLaunchKernel", function, *sizes, None, parameters, None)
            self._call("cuCtxSynchronize")
            after = [self._fetch(p, b) for p, b in zip(pointers, buffers, strict=True)]
        self._call("cuModuleUnload", module)
        return after

    @contextmanager
    def _on_device(self, buffers: Sequence[Array]) -> Iterator[list[c_uint64]]:
        pointers: list[c_uint64] = []
        for buffer in buffers:
            pointer, data = c_uint64(), np.ascontiguousarray(buffer)
            size = c_size_t(max(1, data.nbytes))
            self._call("cuMemAlloc_v2", byref(pointer), size)
            pointers.append(pointer)
            self._call(
                "cuMemcpyHtoD_v2", pointer, c_void_p(data.ctypes.data), c_size_t(data.nbytes)
            )
        yield pointers
        for pointer in pointers:
            self._call("cuMemFree_v2", pointer)

    def _fetch(self, pointer: c_uint64, like: Array) -> Array:
        array = np.empty(like.shape, like.dtype)
        self._call("cuMemcpyDtoH_v2", c_void_p(array.ctypes.data), pointer, c_size_t(array.nbytes))
        return array

    def _encode(self, tensor: TensorMap, address: c_uint64) -> ctypes.Array[c_uint64]:
        """The 128 bytes of a CUtensorMap, at a multiple of 64."""
        memory = (c_uint64 * 24)()
        skip = -(ctypes.addressof(memory) // 8) % 8
        encoded = (c_uint64 * 16).from_buffer(memory, 8 * skip)
        rank = len(tensor.shape)
        self._call(
            "cuTensorMapEncodeTiled",
            byref(encoded),
            c_int(_TENSOR_TYPES[tensor.dtype]),
            c_uint32(rank),
            c_void_p(address.value),
            (c_uint64 * rank)(*tensor.shape),
            (c_uint64 * max(1, rank - 1))(*tensor.strides_bytes),
            (c_uint32 * rank)(*tensor.box),
            (c_uint32 * rank)(*[1] * rank),
            c_int(0),  # not interleaved
            c_int(_SWIZZLES[tensor.swizzle_bytes]),
            c_int(0),  # no promotion to L2
            c_int(0),  # zeros outside
        )
        return encoded

    def _attribute(self, number: int) -> int:
        value = c_int()
        self._call("cuDeviceGetAttribute", byref(value), c_int(number), self._device)
        return value.value

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._cuda, name)(*arguments)
        if status:
            said = c_char_p()
            self._cuda.cuGetErrorString(c_int(status), byref(said))
            text = said.value.decode() if said.value else "no words"
            raise DriverError(f"{name}: {text} ({status})")
