"""The driver's calls, by a library that keeps memory on the host and launches a function."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu.instructions.driver import Driver, DriverError
from tests.spaces.emulation.instructions.program import TensorMap

ILLEGAL = 715


class MadeCuda:
    """libcuda's functions; `kernel` gets the parameters' first 64 bits."""

    def __init__(self, kernel: Callable[[list[int]], int]) -> None:
        self._kernel = kernel
        self.blocks: dict[int, Any] = {}
        self.launched: list[Any] = []
        self.maps: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        assert name.startswith("cu"), name
        return lambda *_: 0

    def cuModuleGetFunction(self, function: Any, module: Any, name: Any) -> int:
        self.launched.append(name.value)
        return 0

    def cuMemAlloc_v2(self, pointer: Any, size: Any) -> int:
        block = ctypes.create_string_buffer(size.value)
        pointer._obj.value = ctypes.addressof(block)
        self.blocks[pointer._obj.value] = block
        return 0

    def cuMemFree_v2(self, pointer: Any) -> int:
        del self.blocks[pointer.value]
        return 0

    def cuMemcpyHtoD_v2(self, pointer: Any, source: Any, size: Any) -> int:
        ctypes.memmove(pointer.value, source.value, size.value)
        return 0

    def cuMemcpyDtoH_v2(self, target: Any, pointer: Any, size: Any) -> int:
        ctypes.memmove(target.value, pointer.value, size.value)
        return 0

    def cuTensorMapEncodeTiled(self, target: Any, *rest: Any) -> int:
        self.maps.append((ctypes.addressof(target._obj) % 64, rest))
        target._obj[0] = 0xABC
        return 0

    def cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        self.launched.append([size.value for size in rest[:7]])
        parameters = rest[8]
        words = [ctypes.cast(p, ctypes.POINTER(ctypes.c_uint64))[0] for p in parameters]
        return self._kernel(words)

    def cuGetErrorString(self, status: Any, said: Any) -> int:
        said._obj.value = b"an illegal instruction was encountered"
        return 0


@pytest.fixture
def cubin(tmp_path: Path) -> Path:
    path = tmp_path / "k.cubin"
    path.write_bytes(b"\x7fELF")
    return path


def run(cuda: MadeCuda, cubin: Path, maps: Sequence[TensorMap] = ()) -> list[Any]:
    given = np.arange(12, dtype=np.int32).reshape(3, 4)
    return Driver(cuda).run(
        cubin,
        "k",
        grid=(2, 3, 1),
        block=(32, 1, 1),
        shared_bytes=1032,
        buffers=[given, np.zeros((3, 4), np.int32)],
        tensor_maps=maps,
    )


def double(words: list[int]) -> int:
    source, target = (np.ctypeslib.as_array((ctypes.c_int32 * 12).from_address(w)) for w in words)
    target[:] = 2 * source
    return 0


def test_a_kernel_gets_pointers_and_gives_all_buffers_back(cubin: Path) -> None:
    cuda = MadeCuda(double)
    given, doubled = run(cuda, cubin)
    np.testing.assert_array_equal(doubled, 2 * given)
    assert cuda.launched == [b"k", [2, 3, 1, 32, 1, 1, 1032]]
    assert cuda.blocks == {}


def test_tensor_maps_come_before_the_pointers_and_are_aligned(cubin: Path) -> None:
    seen: list[list[int]] = []
    cuda = MadeCuda(lambda words: seen.append(words) or 0)  # type: ignore[func-returns-value]
    run(cuda, cubin, [TensorMap(1, "float16", (72, 21), (144,), (32, 8), 64)])
    (words,) = seen
    assert words[0] == 0xABC
    offset, (kind, rank, address, shape, strides, box, steps, _, swizzle, *_) = cuda.maps[0]
    assert offset == 0
    assert address.value == words[2]
    assert [list(sizes) for sizes in (shape, strides, box, steps)] == [
        [72, 21],
        [144],
        [32, 8],
        [1, 1],
    ]
    assert [value.value for value in (kind, rank, swizzle)] == [6, 2, 2]


def test_what_the_driver_says_is_in_the_error(cubin: Path) -> None:
    with pytest.raises(DriverError, match=r"cuLaunchKernel: an illegal instruction .* \(715\)"):
        run(MadeCuda(lambda _words: ILLEGAL), cubin)
