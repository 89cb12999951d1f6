"""What devices gain from convolutions whose channels are last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spaces.ir import tvm_compat
from spaces.targets.gpu import COPIES_AHEAD, has_many_madds
from spaces.targets.nvidia.numbers import architecture_of
from tuner.request.target_text import TF32

_LOAD_BYTES = 16


@dataclass(frozen=True, slots=True)
class Gain:
    """What convolutions of a type gain on a device.

    Attributes:
        flops_per_byte: operations that it does while it moves a byte, to an order of magnitude.
        lost: the time that one loses with channels first, as times the time that it needs.
        dense_terms: whether channels of kernels are best next to one another, as far as they come
            in loads of 16 bytes; if not, filters are.
    """

    flops_per_byte: int
    lost: float
    dense_terms: bool = False

    def of_work(self, flops: int) -> int:
        """The time that running channels-last saves, as the bytes that could be moved in it."""
        return int(self.lost * flops / self.flops_per_byte)


@dataclass(frozen=True, slots=True)
class Gains:
    """What a device gains: by the type of elements, and for all others."""

    of_types: Mapping[str, Gain] = field(default_factory=dict)
    others: Gain | None = None

    def of_convolution(self, flops: int, dtype: str) -> int:
        """What a convolution gains, see `Gain.of_work`."""
        gain = self._of_type(dtype)
        return 0 if gain is None else gain.of_work(flops)

    def lay_out_kernel(self, kernel: Any) -> str:
        """The layout of a convolution's kernel beside channels that are last.

        Args:
            kernel: a constant in OIHW.
        """
        dtype = str(kernel.ty.dtype)
        gain = self._of_type(dtype)
        channels = [int(size) for size in tvm_compat.tensor_dims(kernel) or ()][1]
        loads = channels * tvm_compat.element_bits(dtype) % (8 * _LOAD_BYTES) == 0
        return "OHWI" if loads and gain is not None and gain.dense_terms else "HWIO"

    def _of_type(self, dtype: str) -> Gain | None:
        return self.of_types.get(dtype, self.others)


CPU = Gains(others=Gain(8, 2.0))
_TENSOR_CORES, _THREADS = Gain(150, 2.0), Gain(20, 0.1)
_DENSE_ON_TENSOR_CORES = replace(_TENSOR_CORES, dense_terms=True)


def cpu_gains(_target: Any) -> Gains:
    """Those of a CPU, which reads channels in vectors."""
    return CPU


def cuda_gains(target: Any) -> Gains | None:
    """Those of a GPU, where windows of channels are copied 16 bytes each time: of what tensor cores
    multiply, and of singles where threads start as many products as instructions, so that
    instructions to find windows take time from these; None for others.

    Args:
        target: TVM's own.
    """
    architecture = architecture_of(str(target.attrs.get("arch", "")))
    if architecture < COPIES_AHEAD:
        return None
    found = dict.fromkeys(("float16", "bfloat16"), _TENSOR_CORES)
    found |= dict.fromkeys(("int8", "uint8"), _DENSE_ON_TENSOR_CORES)
    if TF32 in target.keys:
        found["float32"] = _DENSE_ON_TENSOR_CORES
    elif has_many_madds(architecture):
        found["float32"] = _THREADS
    return Gains(found)
