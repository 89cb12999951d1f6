"""What devices gain from convolutions whose channels are last."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from spaces.ir import tvm_compat
from spaces.lowering.layouts.layout_choice import convolution_gain
from spaces.targets.gpu import COPIES_AHEAD
from spaces.targets.nvidia.numbers import architecture_of
from tuner.request.target_text import TF32


@dataclass(frozen=True, slots=True)
class Gains:
    """What a device gains.

    Attributes:
        flops_per_byte: operations that it does while it moves a byte, to an order of magnitude.
        types: of elements, of the convolutions that gain; empty for all.
        dense_terms: types of kernels whose channels are best next to one another, as far as they
            come in loads of 16 bytes; of others filters are.
    """

    flops_per_byte: int
    types: Collection[str] = ()
    dense_terms: Collection[str] = ()

    def of_convolution(self, flops: int, dtype: str) -> int:
        """The time that running channels-last saves, as the bytes that could be moved in it."""
        if self.types and dtype not in self.types:
            return 0
        return convolution_gain(flops, self.flops_per_byte)

    def lay_out_kernel(self, kernel: Any) -> str:
        """The layout of a convolution's kernel beside channels that are last.

        Args:
            kernel: a constant in OIHW.
        """
        dtype = str(kernel.ty.dtype)
        channels = [int(size) for size in tvm_compat.tensor_dims(kernel) or ()][1]
        loads = channels * tvm_compat.element_bits(dtype) % (8 * _LOAD_BYTES) == 0
        return "OHWI" if loads and dtype in self.dense_terms else "HWIO"


_LOAD_BYTES = 16
CPU = Gains(8)
_HALVES, _BYTES, _SINGLES = ("float16", "bfloat16"), ("int8", "uint8"), ("float32",)
_TENSOR_CORES = Gains(150, (*_HALVES, *_BYTES), _BYTES)
_WITH_TF32 = Gains(150, (*_HALVES, *_BYTES, *_SINGLES), (*_BYTES, *_SINGLES))


def cpu_gains(_target: Any) -> Gains:
    """Those of a CPU, which reads channels in vectors."""
    return CPU


def cuda_gains(target: Any) -> Gains | None:
    """Those of a GPU whose tensor cores take windows of channels that were copied 16 bytes each
    time; None for others.

    Args:
        target: TVM's own.
    """
    newer = architecture_of(str(target.attrs.get("arch", ""))) >= COPIES_AHEAD
    if not newer:
        return None
    return _WITH_TF32 if TF32 in target.keys else _TENSOR_CORES
