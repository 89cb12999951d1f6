"""Values that are no tensors: sequences and optionals, as far as they are known at import.

A sequence is a list of values of the graph. It never becomes an expression of Relax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from spaces.frontends.onnx.node import Node, Value
from spaces.frontends.onnx.sizes import read_sizes
from spaces.frontends.onnx.steps import MOST_STEPS

Make: TypeAlias = Callable[[Node, Any], list[Value]]
"""Gives the outputs of a node, with a builder."""


def require_tensors(node: Node) -> None:
    """Refuse an operator of tensors that is given a sequence or an optional.

    Raises:
        TunerError: it is.
    """
    for number, value in enumerate(node.inputs):
        if value is not None and not value.is_tensor:
            raise node.refused(f"its operand {number} is no tensor but {value.form}")


def _parts(node: Node, number: int = 0) -> tuple[Value, ...]:
    value = node.input(number)
    if value is None or value.parts is None:
        raise node.refused(f"its operand {number} is no sequence that is known")
    return value.parts


def _place(node: Node, number: int, most: int, usual: int) -> int:
    """A place in a sequence, counted from the front."""
    if node.input(number) is None:
        return usual
    said = node.numbers(number)
    if said is None:
        raise node.refused("which element is meant is known only when the model runs")
    return said[0] + most if said[0] < 0 else said[0]


def _check(node: Node, place: int, below: int) -> int:
    if not 0 <= place < below:
        raise node.refused(f"the sequence has no place {place}")
    return place


def _construct(node: Node, _: Any) -> list[Value]:
    require_tensors(node)
    return [Value(parts=tuple(value for value in node.inputs if value is not None))]


def _empty(node: Node, _: Any) -> list[Value]:
    return [Value(parts=())]


def _insert(node: Node, _: Any) -> list[Value]:
    parts, new = _parts(node), node.input(1)
    if new is None or not new.is_tensor:
        raise node.refused("what it inserts is no tensor")
    place = _check(node, _place(node, 2, len(parts), len(parts)), len(parts) + 1)
    return [Value(parts=(*parts[:place], new, *parts[place:]))]


def _erase(node: Node, _: Any) -> list[Value]:
    parts = _parts(node)
    place = _check(node, _place(node, 1, len(parts), len(parts) - 1), len(parts))
    return [Value(parts=(*parts[:place], *parts[place + 1 :]))]


def _at(node: Node, _: Any) -> list[Value]:
    parts = _parts(node)
    return [parts[_check(node, _place(node, 1, len(parts), -1), len(parts))]]


def _length(node: Node, _: Any) -> list[Value]:
    return [_number(np.array(len(_parts(node)), "int64"))]


def _concatenate(node: Node, builder: Any) -> list[Value]:
    from tvm import relax

    parts = _parts(node)
    if not parts:
        raise node.refused("the sequence is empty")
    axis, new = int(node.attributes["axis"]), node.attributes.get("new_axis", 0)
    tensors = [part.tensor(builder) for part in parts]
    if new:
        tensors = [builder.emit(relax.op.expand_dims(tensor, axis)) for tensor in tensors]
    return [Value(expression=builder.emit(relax.op.concat(tensors, axis)))]


def _split(node: Node, builder: Any) -> list[Value]:
    from tvm import relax

    require_tensors(node)
    dims = node.shape(0)
    axis = node.axis(len(dims), 0)
    size, asked, given = dims[axis], node.numbers(1), node.input(1)
    if given is not None and asked is None:
        raise node.refused("how it is split is known only when the model runs")
    if not isinstance(size, int):
        raise node.refused(f"it splits an axis of symbolic size {size}")
    if given is None or not given.dims:
        step = 1 if asked is None else asked[0]
        if step < 1:
            raise node.refused(f"it splits into parts of {step}")
        asked = [min(step, size - begin) for begin in range(0, size, step)]
    if asked is None or min(asked, default=0) < 0 or sum(asked) != size:
        raise node.refused(f"{size} elements cannot be split into {asked}")
    if len(asked) > MOST_STEPS:
        raise node.refused(f"it gives more than {MOST_STEPS} tensors")
    squeezes = given is None and not node.attributes.get("keepdims", 1)
    data, begin, parts = node.tensor(0, builder), 0, []
    for length in asked:
        ends = [[relax.prim_value(place)] for place in (begin, begin + length)]
        part = builder.emit(relax.op.strided_slice(data, [axis], *ends, assume_inbound=True))
        part = builder.emit(relax.op.squeeze(part, [axis])) if squeezes else part
        parts.append(Value(expression=part))
        begin += length
    return [Value(parts=tuple(parts))]


def _optional(node: Node, _: Any) -> list[Value]:
    value = node.input(0)
    return [Value(absent=True) if value is None else value]


def _has_element(node: Node, _: Any) -> list[Value]:
    value = node.input(0)
    return [_number(np.array(value is not None and not value.absent))]


def _get_element(node: Node, _: Any) -> list[Value]:
    value = node.input(0)
    if value is None or value.absent:
        raise node.refused("the optional has no element")
    return [value]


def _identity(node: Node, _: Any) -> list[Value]:
    value = node.input(0)
    if value is None:
        raise node.refused("operand 0 is missing")
    return [value]


def _number(array: np.ndarray[Any, Any]) -> Value:
    return Value(read_sizes(array))


SEQUENCES: Mapping[str, Make] = MappingProxyType(
    {
        "SequenceConstruct": _construct,
        "SequenceEmpty": _empty,
        "SequenceInsert": _insert,
        "SequenceErase": _erase,
        "SequenceAt": _at,
        "SequenceLength": _length,
        "ConcatFromSequence": _concatenate,
        "SplitToSequence": _split,
        "Optional": _optional,
        "OptionalHasElement": _has_element,
        "OptionalGetElement": _get_element,
        "Identity": _identity,
    }
)
"""By operator."""
