"""What devices gain from convolutions whose channels are last."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from spaces.lowering.layouts.layout_choice import convolution_gain
from spaces.targets.gpu import COPIES_AHEAD
from spaces.targets.nvidia.numbers import architecture_of


@dataclass(frozen=True, slots=True)
class Gains:
    """What a device gains.

    Attributes:
        flops_per_byte: operations that it does while it moves a byte, to an order of magnitude.
        types: of elements, of the convolutions that gain; empty for all.
    """

    flops_per_byte: int
    types: Collection[str] = ()

    def of_convolution(self, flops: int, dtype: str) -> int:
        """The time that running channels-last saves, as the bytes that could be moved in it."""
        if self.types and dtype not in self.types:
            return 0
        return convolution_gain(flops, self.flops_per_byte)


CPU = Gains(8)
_TENSOR_CORES = Gains(150, ("float16", "bfloat16"))


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
    return _TENSOR_CORES if newer else None
