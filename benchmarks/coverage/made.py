"""What is known of a network that was made for the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

NO_AXES: Mapping[str, Mapping[int, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Made:
    """A network that was made.

    Attributes:
        module: a `torch.nn.Module` that is ready to infer.
        inputs: examples, by name, in order.
        axes: the open dimensions of inputs: by axis the name, an expression where it follows.
        tuned: the sizes of each open dimension that it is tuned for.
        tried: those that it is tried with, beyond that included.
    """

    module: Any
    inputs: Mapping[str, Any]
    axes: Mapping[str, Mapping[int, str]] = field(default_factory=lambda: NO_AXES)
    tuned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    tried: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


Make = Callable[[], Made]
