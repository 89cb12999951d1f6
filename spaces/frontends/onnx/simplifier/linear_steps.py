"""What `QuantizeLinear` and `DequantizeLinear` say of numbers that are bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spaces.frontends.onnx.node import STANDARD_DOMAINS
from spaces.frontends.onnx.simplifier.known_tensors import Array, KnownTensors
from spaces.frontends.onnx.simplifier.padding import attributes_of

BYTES = ("int8", "uint8")
MOVES = ("Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that give elements of their first operand."""
_DOMAINS = (*STANDARD_DOMAINS, "com.microsoft")
_FLOAT = 1
"""The number of float32 among ONNX's types."""


@dataclass(frozen=True, slots=True)
class Steps:
    """How integers stand for numbers: (integer - zero) * scale.

    Attributes:
        data: the name of what the node is given.
        scale_name, zero_name: of the node's operands.
        scale: float32, one number, or one for each place of the axis.
        zero: as many, or one.
        axis: as the node says it; it may count from the end.
    """

    data: str
    scale_name: str
    zero_name: str
    scale: Array
    zero: Array
    axis: int

    @property
    def dtype(self) -> str:
        """Of the integers."""
        return str(self.zero.dtype)

    def equals(self, other: Steps) -> bool:
        """Whether both are one scale and one zero point, and the same ones."""
        if self.scale.size != 1 or other.scale.size != 1 or self.dtype != other.dtype:
            return False
        return bool(self.scale.item() == other.scale.item() and np.all(self.zero == other.zero))

    def round(self, number: float) -> int:
        """What a number becomes, of one scale and one zero point."""
        limits = np.iinfo(self.dtype)
        exact = np.rint(number / self.scale.astype("float64")).item() + int(self.zero.item())
        return int(np.clip(exact, limits.min, limits.max))


def read_steps(node: Any, operator: str, known: KnownTensors) -> Steps | None:
    """Those of a node; None of another operator, of blocks, of floats other than float32, and where
    scale or zero point are not constants."""
    if node is None or node.op_type != operator or node.domain not in _DOMAINS:
        return None
    given = attributes_of(node)
    real = "precision" if operator == "QuantizeLinear" else "output_dtype"
    if len(node.input) < 2 or given.get("block_size", 0) or given.get(real, 0) not in (0, _FLOAT):
        return None
    scale = known.array(node.input[1])
    name = node.input[2] if len(node.input) > 2 else ""
    zero = known.array(name) if name else _zero_of(node, known)
    if scale is None or zero is None or scale.dtype != np.float32 or scale.ndim > 1:
        return None
    if not np.all(np.isfinite(scale) & (scale > 0)) or zero.size not in (1, scale.size):
        return None
    axis = int(given.get("axis", 1))
    return Steps(node.input[0], node.input[1], name, scale, zero, axis)


def _zero_of(node: Any, known: KnownTensors) -> Array | None:
    """The zero point of a node that names none; None where its type is not known."""
    if node.op_type == "QuantizeLinear":
        return np.zeros((), "uint8") if not attributes_of(node).get("output_dtype", 0) else None
    codes = known.array(node.input[0])
    return None if codes is None else np.zeros((), codes.dtype)
