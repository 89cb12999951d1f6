"""Operators that hold graphs of their own: `If`, `Loop`, `Scan`.

Which branch is taken, and how many steps are done, has to be known when a model is imported. The
graph is then imported in the operator's place, once for each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from spaces.frontends.onnx.node import Node, Value
from spaces.frontends.onnx.sizes import read_sizes
from spaces.frontends.onnx.steps import MOST_STEPS, join_pieces, pieces

Inside: TypeAlias = Callable[[Any, Sequence[Value | None]], list[Value]]
"""Imports a graph that sees all that is known where it stands, its inputs bound to these values;
gives its outputs."""
Unfold: TypeAlias = Callable[[Node, Any, Inside], list[Value]]
"""Gives the outputs of a node, with a builder and what imports its graphs."""


def _branch(node: Node, _: Any, inside: Inside) -> list[Value]:
    condition = node.numbers(0)
    if condition is None:
        raise node.refused("which branch is taken is known only when the model runs")
    return inside(node.attributes["then_branch" if condition[0] else "else_branch"], [])


def _loop(node: Node, builder: Any, inside: Inside) -> list[Value]:
    body, number = node.attributes["body"], len(node.inputs) - 2
    most, going = node.input(0), node.input(1) or _known(True)
    if most is not None and most.numbers is None:
        raise node.refused("how many steps it takes is known only when the model runs")
    end = None if most is None or most.numbers is None else most.numbers[0]
    carried: list[Value | None] = list(node.inputs[2:])
    seen: list[list[Value]] = []
    while len(seen) != max(end, 0) if end is not None else True:
        if going.numbers is None:
            raise node.refused("whether it goes on is known only when the model runs")
        if not going.numbers[0]:
            break
        if len(seen) == MOST_STEPS:
            raise node.refused(f"it takes more than {MOST_STEPS} steps, which are unrolled")
        going, *found = inside(body, [_known(len(seen)), going, *carried])
        carried = [*found[:number]]
        seen.append(found[number:])
    axes = [0] * (len(body.output) - 1 - number)
    return [*(value for value in carried if value), *_stack(node, builder, seen, axes)]


def _known(number: int | bool) -> Value:
    dtype = np.bool_ if isinstance(number, bool) else np.int64
    return Value(read_sizes(np.array(number, dtype=dtype)))


def _scan(node: Node, builder: Any, inside: Inside) -> list[Value]:
    body, given = node.attributes["body"], node.attributes
    number = given["num_scan_inputs"]
    states = len(node.inputs) - number
    results = len(body.output) - states
    carried: list[Value | None] = list(node.inputs[:states])
    axes = given.get("scan_input_axes", [0] * number)
    turned = given.get("scan_input_directions", [0] * number)
    columns = [_columns(node, builder, states + place, axis) for place, axis in enumerate(axes)]
    length = len(columns[0])
    if any(len(column) != length for column in columns):
        raise node.refused("its inputs have unlike numbers of steps")
    rows = zip(*(c[::-1] if t else c for c, t in zip(columns, turned, strict=True)), strict=True)
    seen: list[list[Value]] = []
    for row in rows:
        found = inside(body, [*carried, *row])
        carried = [*found[:states]]
        seen.append(found[states:])
    stacked = _stack(
        node,
        builder,
        seen,
        given.get("scan_output_axes", [0] * results),
        given.get("scan_output_directions", [0] * results),
    )
    return [*(value for value in carried if value), *stacked]


def _columns(node: Node, builder: Any, place: int, axis: int) -> list[Value]:
    """What one input is at each step."""
    from tvm import relax

    dims, value = node.dims(place), node.input(place)
    length = None if dims is None else dims[axis]
    if value is None or dims is None or not isinstance(length, int):
        raise node.refused(f"how many steps it takes is no number but {length}")
    if not 0 < length <= MOST_STEPS:
        raise node.refused(f"it takes {length} steps, and 1 to {MOST_STEPS} are unrolled")
    found = pieces(builder, value.tensor(builder), axis % len(dims), length)
    return [Value(expression=builder.emit(relax.op.squeeze(one, [axis]))) for one in found]


def _stack(
    node: Node,
    builder: Any,
    seen: Sequence[Sequence[Value]],
    axes: Sequence[int],
    turned: Sequence[int] = (),
) -> list[Value]:
    """What the steps gave, along an axis for each output; those that are turned begin with the
    last step."""
    from tvm import relax

    if axes and not seen:
        raise node.refused("it takes no step, and what it gives has no shape")
    found = []
    for place, axis in enumerate(axes):
        parts = [
            builder.emit(relax.op.expand_dims(values[place].tensor(builder), axis))
            for values in seen
        ]
        backwards = bool(turned) and turned[place]
        whole = join_pieces(builder, parts[::-1] if backwards else parts, axis)
        found.append(Value(expression=whole))
    return found


CONTROL_FLOW: Mapping[str, Unfold] = MappingProxyType({"If": _branch, "Loop": _loop, "Scan": _scan})
