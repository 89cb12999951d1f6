"""What devices gain from convolutions whose channels are last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spaces.targets.gpu import COPIES_AHEAD, has_many_madds
from spaces.targets.nvidia.numbers import architecture_of


@dataclass(frozen=True, slots=True)
class Gain:
    """What convolutions of a type gain on a device.

    Attributes:
        flops_per_byte: operations that it does while it moves a byte, to an order of magnitude.
        lost: the time that one loses with channels first, as times the time that it needs.
    """

    flops_per_byte: int
    lost: float

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
        gain = self.of_types.get(dtype, self.others)
        return 0 if gain is None else gain.of_work(flops)


CPU = Gains(others=Gain(8, 2.0))
_TENSOR_CORES, _THREADS = Gain(150, 2.0), Gain(20, 0.1)


def cpu_gains(_target: Any) -> Gains:
    """Those of a CPU, which reads channels in vectors."""
    return CPU


def cuda_gains(target: Any) -> Gains | None:
    """Those of a GPU, where windows of channels are copied 16 bytes each time: of halves that
    tensor cores multiply, and of singles where threads start as many products as instructions, so
    that instructions to find windows take time from these; None for others.

    Args:
        target: TVM's own.
    """
    architecture = architecture_of(str(target.attrs.get("arch", "")))
    if architecture < COPIES_AHEAD:
        return None
    found = dict.fromkeys(("float16", "bfloat16"), _TENSOR_CORES)
    if has_many_madds(architecture):
        found["float32"] = _THREADS
    return Gains(found)
