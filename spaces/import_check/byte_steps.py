"""Where a graph that rounds to bytes parts from its source: between one rounding and the next.

Where two sides round a number that is next to a tie, one has a step more, which all layers behind
see: outputs of a deep network say little. So both sides are fed with the bytes that the source
computes, wherever there are any, and what each makes of them up to the next bytes is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.frontends.onnx.node import describe_node
from spaces.import_check.bounds import TO_BYTES, coarsest_step, part
from spaces.import_check.graph_parts import GraphPart, about_value, used_names
from spaces.import_check.locate import Fault, Grown, locate
from spaces.import_check.sources import CannotRun, onnx_source
from tuner.errors import TunerError, first_line

Array = npt.NDArray[Any]


def locate_between_bytes(
    proto: Any, names: Sequence[str], feeds: Sequence[Array], target: str, limit_s: float
) -> Fault | Grown | str:
    """Find the node where an imported graph that rounds to bytes parts from its source.

    Args:
        proto: with all data in it.
        names: of its inputs.
        limit_s: seconds for the search among the nodes that lead to a difference.

    Returns:
        The node, or that rounding has grown; why neither was found, in a few words.
    """
    given = dict(zip(names, feeds, strict=True))
    try:
        rounded, ends = _by_source(proto, given)
        values = given | {name: value for name, value in rounded.items() if _is_byte(value)}
        steps = _cut_at_bytes(proto, values)
        got = steps.by_us(values, target)
    except (CannotRun, TunerError) as error:
        return f"the node was not found: {first_line(error)}"
    want = {_computed(name): value for name, value in values.items()} | ends
    step = coarsest_step(proto, with_bytes=False)
    for name in steps.outputs:
        if said := part(got[name], want[name], narrow=_is_byte(want[name]), step=step):
            before = _leading_to(steps, name)
            inputs = {name: values[name] for name in before.inputs}
            found = locate(before.proto, [*inputs], [*inputs.values()], target, limit_s, step)
            if isinstance(found, Fault):
                return found
            last = f"what leads to {describe_node(before.proto.graph.node[-1])}"
            return Fault(last, said, inputs, {name: got[name]}, {name: want[name]})
    return Grown(("what is rounded to bytes",))


def _by_source(proto: Any, given: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """What the source rounds to bytes, and its outputs, by name."""
    import onnx

    rounding = [node for node in proto.graph.node if node.op_type.startswith(TO_BYTES)]
    rounded = [name for node in rounding for name in node.output if name]
    ends = [output.name for output in proto.graph.output]
    names = dict.fromkeys([*rounded, *ends])
    told = type(proto)()
    told.CopyFrom(proto)
    del told.graph.output[:]
    told.graph.output.extend(map(onnx.helper.make_empty_tensor_value_info, names))
    found = onnx_source(told, [*given]).outputs([*given.values()])
    values = dict(zip(names, found, strict=True))
    return {name: values[name] for name in rounded}, {name: values[name] for name in ends}


def _computed(name: str) -> str:
    """What comes out as a value that is also given."""
    return f"{name} computed"


def _is_byte(value: Array) -> bool:
    return value.dtype in (np.int8, np.uint8)


def _cut_at_bytes(proto: Any, values: Mapping[str, Array]) -> GraphPart:
    """The graph with these values as inputs, and what it computes for them among its outputs.

    Args:
        values: of its inputs, and those to cut at.
    """
    import onnx

    cut = type(proto)()
    cut.CopyFrom(proto)
    graph = cut.graph
    inner = {name for node in graph.node for name in node.output} & values.keys()
    computed = {name: _computed(name) for name in inner}
    for node in graph.node:
        node.output[:] = [computed.get(name, name) for name in node.output]
    ends = [name for output in graph.output if (name := output.name) not in computed]
    outputs = (*(computed[name] for name in values if name in computed), *ends)
    own = {tensor.name for tensor in graph.initializer}
    inputs = tuple(name for name in values if name not in own)
    del graph.input[:], graph.output[:], graph.value_info[:]
    graph.input.extend(about_value(name, values) for name in inputs)
    graph.output.extend(map(onnx.helper.make_empty_tensor_value_info, outputs))
    return GraphPart(cut, inputs, outputs)


def _leading_to(steps: GraphPart, output: str) -> GraphPart:
    """The nodes that an output needs, as a graph of their own."""
    needed, nodes = {output}, list[Any]()
    for node in reversed(steps.proto.graph.node):
        if needed & {*node.output}:
            needed |= {*used_names(node)}
            nodes.insert(0, node)
    graph = steps.proto.graph
    before = type(steps.proto)(
        ir_version=steps.proto.ir_version,
        opset_import=steps.proto.opset_import,
        functions=steps.proto.functions,
    )
    before.graph.name = graph.name
    before.graph.node.extend(nodes)
    for mine, all_ in (
        (before.graph.initializer, graph.initializer),
        (before.graph.input, graph.input),
        (before.graph.output, graph.output),
    ):
        mine.extend(each for each in all_ if each.name in needed)
    inputs = tuple(value.name for value in before.graph.input)
    return GraphPart(before, inputs, (output,))
