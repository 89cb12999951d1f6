"""Padding, factors and terms beside convolutions, put into these.

A factor for each channel goes into the weight, a term into the bias: what is along another axis, or
would make the result larger, stays. A weight that others read as well is left to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from spaces.frontends.onnx.node import STANDARD_DOMAINS
from spaces.frontends.onnx.simplifier.known_tensors import Array, KnownTensors
from spaces.frontends.onnx.simplifier.names_read import uses
from spaces.frontends.onnx.simplifier.padding import attributes_of, take_padding

_CONVOLUTIONS = ("Conv", "ConvTranspose")
_WIDE = ("float32", "float64")


@dataclass(frozen=True, slots=True)
class _Change:
    """What is done to the result of a convolution: times a factor, plus a term, each a number or
    one for each channel."""

    factor: Array
    term: Array


def merge_convolutions(nodes: Iterable[Any], known: KnownTensors, kept: set[str]) -> list[Any]:
    """Nodes, with what can be put into convolutions in these.

    Args:
        kept: values that others than nodes read.
    """
    listed = list(nodes)
    read = uses(listed, kept)
    makers: dict[str, Any] = {}
    gone: set[int] = set()
    for node in listed:
        source = _single_source(node, makers, read)
        if source is not None and node.domain in STANDARD_DOMAINS:
            if node.op_type == "Conv" and source.op_type == "Pad":
                if take_padding(node, source, known):
                    gone.add(id(source))
            elif source.op_type in _CONVOLUTIONS and _take_change(source, node, known):
                gone.add(id(node))
        makers |= dict.fromkeys(node.output, source if id(node) in gone else node)
    return [node for node in listed if id(node) not in gone]


def _single_source(node: Any, makers: dict[str, Any], read: Counter[str]) -> Any | None:
    """The node of ONNX that makes the one operand that is no constant, if nobody else reads it."""
    made = [name for name in node.input if name in makers]
    if len(made) != 1 or read[made[0]] != 1:
        return None
    source = makers[made[0]]
    return source if source.domain in STANDARD_DOMAINS else None


def _take_change(convolution: Any, node: Any, known: KnownTensors) -> bool:
    """Have a convolution do what a node does to its result, if it can."""
    weight = known.array(convolution.input[1])
    if weight is None or str(weight.dtype) not in _WIDE or len(node.output) != 1:
        return False
    channels, groups = _channels(convolution, weight)
    change = _change(node, convolution.output[0], known, weight, channels)
    if change is None:
        return False
    bias: Array | None = np.zeros(channels)
    if len(convolution.input) > 2 and convolution.input[2]:
        bias = known.array(convolution.input[2])
    if bias is None or bias.shape != (channels,):
        return False
    wide = np.broadcast_to(change.factor.astype("float64"), (channels,))
    with np.errstate(over="ignore"):  # what became infinite is seen below
        new_weight = _scale(weight, wide, groups if convolution.op_type == "ConvTranspose" else 0)
        new_bias = (bias.astype("float64") * wide + change.term).astype(weight.dtype)
    if not (_is_kept(weight, new_weight) and np.all(np.isfinite(new_bias))):
        return False
    name = node.output[0]
    operands = [convolution.input[0], known.new(f"{name}/weight", new_weight)]
    del convolution.input[:]
    convolution.input.extend([*operands, known.new(f"{name}/bias", new_bias)])
    convolution.output[0] = name
    return True


def _channels(convolution: Any, weight: Array) -> tuple[int, int]:
    """Of the result, and in how many groups they are."""
    groups = next((int(a.i) for a in convolution.attribute if a.name == "group"), 1)
    if convolution.op_type == "Conv":
        return weight.shape[0], groups
    return weight.shape[1] * groups, groups


def _scale(weight: Array, factor: Array, groups: int) -> Array:
    """A weight times a factor for each channel of the result, whose axis is the first one; that of
    a transposed convolution is the second one, in groups along the first."""
    wide = weight.astype("float64")
    ones = [1] * (weight.ndim - 2)
    if not groups:
        found = wide * factor.reshape(-1, 1, *ones)
    else:
        parts = wide.reshape(groups, -1, *weight.shape[1:])
        found = parts * factor.reshape(groups, 1, weight.shape[1], *ones)
    with np.errstate(over="ignore"):
        return found.reshape(weight.shape).astype(weight.dtype)


def _is_kept(weight: Array, scaled: Array) -> bool:
    """Whether a scaled weight still has what it had: it holds no infinity, and nothing of it was
    too small for its type."""
    lost = (weight != 0) & (np.abs(scaled) < np.finfo(scaled.dtype).tiny)
    return bool(np.all(np.isfinite(scaled)) and not np.any(lost))


def _change(
    node: Any, data: str, known: KnownTensors, weight: Array, channels: int
) -> _Change | None:
    """What a node does to each channel of a convolution's result; None where it is more than a
    factor and a term."""
    if node.op_type == "BatchNormalization":
        return _normalization(node, data, known, channels)
    if node.op_type not in ("Add", "Div", "Mul", "Sub") or len(node.input) != 2:
        return None
    first = node.input[0] == data
    other = known.array(node.input[1 if first else 0])
    if other is None or other.dtype != weight.dtype:
        return None
    value = _for_each_channel(other, weight.ndim, channels)
    if value is None:
        return None
    one, zero = np.ones(1), np.zeros(1)
    match node.op_type:
        case "Add":
            return _Change(one, value)
        case "Sub":
            return _Change(one, -value) if first else _Change(-one, value)
        case "Mul":
            return _Change(value, zero)
    return _Change(1 / value, zero) if first and np.all(value != 0) else None


def _for_each_channel(array: Array, rank: int, channels: int) -> Array | None:
    """A constant as a number, or one for each channel of a result of that rank; None where it is
    along another axis or makes the result larger."""
    if array.ndim > rank or array.size not in (1, channels):
        return None
    shape = (1,) * (rank - array.ndim) + array.shape
    if array.size > 1 and shape[1] != channels:
        return None
    return array.astype("float64").reshape(-1)


def _normalization(node: Any, data: str, known: KnownTensors, channels: int) -> _Change | None:
    given = attributes_of(node)
    arrays = [known.array(name) for name in node.input[1:]]
    if given.get("training_mode", 0) or given.get("spatial", 1) != 1 or node.input[0] != data:
        return None
    vectors = [a.astype("float64") for a in arrays if a is not None and a.shape == (channels,)]
    if len(vectors) != 4:
        return None
    gamma, beta, mean, variance = vectors
    spread = variance + given.get("epsilon", 1e-5)
    if not np.all(spread > 0):
        return None
    factor = gamma / np.sqrt(spread)
    return _Change(factor, beta - mean * factor)
