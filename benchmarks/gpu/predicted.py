"""What a kernel takes by the model that times the emulated device, read from its program.

The work of a launch is counted by multiplying the lengths of loops around each access and each
operation, where the emulated device counts what was done: guards are taken to let all pass,
barriers are not counted, and a program with loops of unknown length has no prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from spaces.devices.launch_model import launch_s
from spaces.emulation.library import Launch
from spaces.ir.element_types import is_float
from spaces.ir.guard import note
from spaces.ir.tvm_compat import as_int, element_bits

_PASSES = (
    "LowerCrossThreadReduction",
    "LowerInitBlock",
    "PlanAndUpdateBufferAllocationLocation",
    "ConvertBlocksToOpaque",
    "CompactBufferAllocation",
    "LowerMatchBuffer",
    "LowerOpaqueBlock",
)
"""What leaves loops, threads and buffers as large as they are, and costs milliseconds."""
_LANES, _TILE = 32, 16
_SLOW = ("exp", "log", "tanh", "pow", "erf", "sqrt", "rsqrt", "sin", "cos")
_SLOW_OPERATIONS = 8
"""Of one of these, as the emulated device counts them."""


@dataclass(slots=True)
class _Kernel:
    """Work of one thread, and the sizes of the launch by axis."""

    sizes: dict[str, int] = field(default_factory=dict)
    block_shared_bytes: int = 0
    operations: int = 0
    global_bytes: int = 0
    shared_bytes: int = 0
    tensor_operations: int = 0

    def count(self, axis: str) -> int:
        """Blocks, or threads of a block."""
        return prod(size for tag, size in self.sizes.items() if tag.startswith(axis))

    def launch(self, number: int) -> Launch:
        """The launch of all its threads."""
        blocks, threads = self.count("blockIdx"), self.count("threadIdx")
        return Launch(
            kernel=f"kernel {number}",
            blocks=blocks,
            threads=threads,
            block_shared_bytes=self.block_shared_bytes,
            operations=self.operations * blocks * threads,
            global_bytes=self.global_bytes * blocks * threads,
            shared_bytes=self.shared_bytes * blocks * threads,
            tensor_operations=self.tensor_operations * blocks * threads,
            barriers=0,
        )


def predict_s(module: Any, target: str) -> float | None:
    """Seconds of a scheduled module's kernels on a CUDA device; None where they cannot be read.

    Args:
        target: as JSON.
    """
    try:
        launches = read_launches(module)
    except Exception as error:  # TVM raises whatever its C++ side threw
        note(error, "a prediction of a kernel")
        return None
    return sum(launch_s(launch, target) for launch in launches) if launches else None


def read_launches(module: Any) -> Sequence[Launch]:
    """The launches of a scheduled module's "main"; none where a loop's length is not known."""
    from tvm.s_tir import transform

    for name in _PASSES:
        module = getattr(transform, name)()(module)
    kernels: list[_Kernel] = []
    try:
        _read(module["main"].body, 1, None, kernels)
    except _Unknown:
        return []
    return [kernel.launch(number) for number, kernel in enumerate(kernels)]


class _Unknown(Exception):
    """A length is no number."""


def _length(expression: Any) -> int:
    known = as_int(expression)
    if known is None:
        raise _Unknown
    return known


def _read(node: Any, times: int, kernel: _Kernel | None, kernels: list[_Kernel]) -> None:
    """Count what a statement does that runs some times, in a thread of a kernel."""
    kind = type(node).__name__
    if kind == "AttrStmt" and node.attr_key == "thread_extent":
        if kernel is None:
            kernels.append(kernel := _Kernel())
        tag, size = str(node.node.thread_tag), _length(node.value)
        kernel.sizes[tag] = max(size, kernel.sizes.get(tag, 1))
    elif kind == "AttrStmt" and node.attr_key == "virtual_thread":
        times *= _length(node.value)
    elif kind == "For":
        times *= _length(node.extent)
    elif kind == "AllocBuffer" and kernel is not None and _is_shared(node.buffer):
        elements = prod(_length(dim) for dim in node.buffer.shape)
        kernel.block_shared_bytes += elements * _bytes(node.buffer)
    elif kind == "BufferStore" and kernel is not None:
        _touch(kernel, node.buffer, times)
        _compute(kernel, node.value, times)
    elif kind == "Evaluate" and kernel is not None:
        _compute(kernel, node.value, times)
    for name in ("body", "then_case", "else_case"):
        if (inner := getattr(node, name, None)) is not None:
            _read(inner, times, kernel, kernels)
    for inner in getattr(node, "seq", ()):
        _read(inner, times, kernel, kernels)


def _compute(kernel: _Kernel, value: Any, times: int) -> None:
    """Count an expression's loads and its operations on floats."""
    import tvm
    import tvm_ffi
    from tvm import tirx

    def call(node: Any) -> None:
        name = str(getattr(node.op, "name", "")).rpartition(".")[2]
        if name == "tvm_mma_sync":
            kernel.tensor_operations += times * 2 * _TILE**3 // _LANES
        elif name in ("tvm_load_matrix_sync", "tvm_store_matrix_sync"):
            kernel.shared_bytes += times * _TILE**2 * 2 // _LANES
        elif name.startswith(_SLOW):
            kernel.operations += times * _SLOW_OPERATIONS

    def operate(node: Any) -> None:
        kernel.operations += times * _is_of_floats(node)

    arithmetic = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div)
    loads = (tvm.ir.TensorLoad, lambda load: _touch(kernel, load.source, times))
    tvm_ffi.structural_walk(value, [loads, (tvm.ir.Call, call), (arithmetic, operate)])


def _touch(kernel: _Kernel, buffer: Any, times: int) -> None:
    if _is_shared(buffer):
        kernel.shared_bytes += times * _bytes(buffer)
    elif str(buffer.scope()) in ("", "global"):
        kernel.global_bytes += times * _bytes(buffer)


def _is_of_floats(expression: Any) -> bool:
    return is_float(str(getattr(expression.ty, "dtype", "")))


def _is_shared(buffer: Any) -> bool:
    return str(buffer.scope()).startswith("shared")


def _bytes(buffer: Any) -> int:
    return element_bits(buffer.dtype) // 8
