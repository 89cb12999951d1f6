"""The calls of CUDA's runtime library that timing makes, as a seam that a fake can stand behind.

Each call that fails raises a `DeviceFault` with the library's own name of the error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from spaces.ir.cuda_runtime import CUDART

OUT_OF_MEMORY = ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY")
"""Words of the runtime, and of the driver, which loads kernels."""
_RELAXED = 2
"""cudaStreamCaptureModeRelaxed: a kernel that takes workspace from a pool may be captured."""


class DeviceFault(RuntimeError):
    """A call of the driver that failed. `name` is the library's word, such as
    `cudaErrorMemoryAllocation`."""

    def __init__(self, call: str, name: str, text: str = "") -> None:
        super().__init__(f"{call}: {name}{f' ({text})' if text else ''}")
        self.name = name


class Graph(Protocol):
    """Launches that the device runs one after the other without the host."""

    def launch(self, replays: int) -> float:
        """Seconds between the start of the first and the end of the last of some replays."""

    def close(self) -> None:
        """Free it."""


class Runtime(Protocol):
    """One CUDA device."""

    def synchronize(self) -> None:
        """Wait until the device has done all that it was asked for."""

    def graph(self, enqueue: Sequence[Callable[[], None]], times: int = 1) -> Graph:
        """Record what some functions launch on the device, `times` over, without running it."""

    def memset(self, size_bytes: int) -> Callable[[], None]:
        """A function that launches the filling of so many bytes of the device's memory."""


class CudaRuntime:
    """Implements `Runtime` by the library.

    TVM launches on the stream that it is told; graphs are recorded on one of our own, since the
    default stream cannot be recorded.

    Args:
        device: TVM's device.

    Raises:
        OSError: the loader does not find the library.
        DeviceFault: the device gives no stream.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        # What TVM's runtime is linked with: the same context, streams and errors.
        self._library = ctypes.CDLL(CUDART)
        self._library.cudaGetErrorName.restype = ctypes.c_char_p
        self._library.cudaGetErrorString.restype = ctypes.c_char_p
        self._call("cudaSetDevice", device.index)
        self._stream = ctypes.c_void_p()
        self._call("cudaStreamCreateWithFlags", ctypes.byref(self._stream), 1)
        self._filled: dict[int, ctypes.c_void_p] = {}

    def synchronize(self) -> None:
        """See `Runtime`."""
        self._call("cudaDeviceSynchronize")

    def graph(self, enqueue: Sequence[Callable[[], None]], times: int = 1) -> Graph:
        """See `Runtime`."""
        self.synchronize()
        recorded = ctypes.c_void_p()
        self._device.set_raw_stream(self._stream.value)
        try:
            self._call("cudaStreamBeginCapture", self._stream, _RELAXED)
            try:
                for _ in range(times):
                    for each in enqueue:
                        each()
            finally:
                self._call("cudaStreamEndCapture", self._stream, ctypes.byref(recorded))
        finally:
            self._device.set_raw_stream(0)
        return _CudaGraph(self._call, recorded, self._stream)

    def memset(self, size_bytes: int) -> Callable[[], None]:
        """See `Runtime`. Equal sizes share their memory."""
        if size_bytes not in self._filled:
            pointer = ctypes.c_void_p()
            self._call("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(size_bytes))
            self._filled[size_bytes] = pointer
        pointer = self._filled[size_bytes]

        def fill() -> None:
            size = ctypes.c_size_t(size_bytes)
            self._call("cudaMemsetAsync", pointer, 0, size, self._stream)

        return fill

    def _call(self, name: str, *args: Any) -> None:
        code = getattr(self._library, name)(*args)
        if code:
            self._library.cudaGetLastError()  # else the next call, which may be TVM's, reports it
            word = self._library.cudaGetErrorName(code).decode()
            raise DeviceFault(name, word, self._library.cudaGetErrorString(code).decode())


class _CudaGraph:
    """Implements `Graph`."""

    def __init__(
        self, call: Callable[..., None], recorded: ctypes.c_void_p, stream: ctypes.c_void_p
    ) -> None:
        self._call, self._stream, self._recorded = call, stream, recorded
        self._executable = ctypes.c_void_p()
        call(
            "cudaGraphInstantiate", ctypes.byref(self._executable), recorded, ctypes.c_ulonglong(0)
        )
        self._events = ctypes.c_void_p(), ctypes.c_void_p()
        for event in self._events:
            call("cudaEventCreate", ctypes.byref(event))

    def launch(self, replays: int) -> float:
        """See `Graph`."""
        first, last = self._events
        self._call("cudaEventRecord", first, self._stream)
        for _ in range(replays):
            self._call("cudaGraphLaunch", self._executable, self._stream)
        self._call("cudaEventRecord", last, self._stream)
        self._call("cudaStreamSynchronize", self._stream)
        elapsed_ms = ctypes.c_float()
        self._call("cudaEventElapsedTime", ctypes.byref(elapsed_ms), first, last)
        return elapsed_ms.value * 1e-3

    def close(self) -> None:
        """See `Graph`."""
        for event in self._events:
            self._call("cudaEventDestroy", event)
        self._call("cudaGraphExecDestroy", self._executable)
        self._call("cudaGraphDestroy", self._recorded)
