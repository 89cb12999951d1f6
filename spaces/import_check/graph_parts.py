"""Parts of a graph of ONNX as graphs of their own, fed with what the source computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.codegen.executable import run_once
from spaces.frontends.inputs import InputSpec
from spaces.frontends.onnx.model import import_graph
from spaces.import_check.plain_code import compile_untuned
from spaces.import_check.sources import onnx_source
from spaces.ir.element_types import numpy_dtype

Array = npt.NDArray[Any]
_CONSTANT = 1024
"""Integers up to so many become constants: sizes have to be known when a graph is imported."""


@dataclass(frozen=True, slots=True)
class GraphPart:
    """The nodes of a graph from one place to another.

    Attributes:
        proto: of the part.
        inputs, outputs: names of what goes in and comes out, in order.
    """

    proto: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def by_us(self, values: Mapping[str, Array], target: str) -> dict[str, Array]:
        """What we make of it without a schedule.

        Raises:
            TunerError: it cannot be imported by itself.
        """
        specs = [
            InputSpec(name, values[name].shape, _tvm_dtype(values[name])) for name in self.inputs
        ]
        copy = type(self.proto)()
        copy.CopyFrom(self.proto)
        module = import_graph(copy, specs, Path("part.onnx"))
        found = run_once(compile_untuned(module, target), [values[name] for name in self.inputs])
        return dict(zip(self.outputs, found, strict=True))

    def by_source(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """What the source makes of it.

        Raises:
            CannotRun: it does not run it.
        """
        source = onnx_source(self.proto, self.inputs)
        found = source.outputs([values[name] for name in self.inputs])
        return dict(zip(self.outputs, found, strict=True))


def all_values(proto: Any, names: Sequence[str], feeds: Sequence[Array]) -> dict[str, Array]:
    """Each value of a graph as the source computes it, by name; those that are no tensors and
    those of nodes that it cannot run by itself are left out.

    Args:
        names: of the inputs.

    Raises:
        CannotRun: it does not run the graph with them.
    """
    values = dict(zip(names, feeds, strict=True))
    for number in range(len(proto.graph.node)):
        part = cut(proto, number, number + 1, values, every=True)
        values |= part.by_source(values)
    return values


def cut(
    proto: Any, start: int, end: int, values: Mapping[str, Array], *, every: bool = False
) -> GraphPart:
    """The nodes from one place to another as a graph.

    Args:
        values: what is known so far; small integers among them become constants.
        every: whether all that it computes comes out, not only what is used further on.
    """
    import onnx

    nodes = proto.graph.node[start:end]
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    inside = {name for node in nodes for name in node.output if name}
    used = dict.fromkeys(name for node in nodes for name in used_names(node))
    later = {name for node in proto.graph.node[end:] for name in used_names(node)}
    later |= {value.name for value in proto.graph.output}
    outside = [name for name in used if name not in inside and name not in weights]
    held = [name for name in outside if _is_constant(values[name])] if start else []
    part = type(proto)()
    part.CopyFrom(proto)
    del part.graph.node[:], part.graph.input[:], part.graph.output[:]
    del part.graph.initializer[:], part.graph.value_info[:]
    part.graph.node.extend(nodes)
    part.graph.initializer.extend(weights[name] for name in used if name in weights)
    part.graph.initializer.extend(onnx.numpy_helper.from_array(values[name], name) for name in held)
    inputs = tuple(name for name in outside if name not in held)
    part.graph.input.extend(about_value(name, values) for name in inputs)
    outputs = tuple(name for name in _in_order(nodes) if every or name in later)
    part.graph.output.extend(about_value(name, values) for name in outputs)
    return GraphPart(part, inputs, outputs)


def used_names(node: Any) -> Iterator[str]:
    """What a node reads, in the graphs inside of it too."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
            own = {value.name for value in graph.input} | {t.name for t in graph.initializer}
            own |= {name for inner in graph.node for name in inner.output}
            inner_names = [name for inner in graph.node for name in used_names(inner)]
            inner_names += [value.name for value in graph.output]
            yield from (name for name in inner_names if name not in own)


def _in_order(nodes: Iterable[Any]) -> Iterator[str]:
    return (name for node in nodes for name in node.output if name)


def _is_constant(value: Array) -> bool:
    return value.dtype.kind in "iub" and value.dtype.itemsize != 1 and value.size <= _CONSTANT


def about_value(name: str, values: Mapping[str, Array]) -> Any:
    """The type and shape of a value, as far as it is known."""
    import onnx

    if (value := values.get(name)) is None:
        return onnx.helper.make_empty_tensor_value_info(name)
    dtype = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    return onnx.helper.make_tensor_value_info(name, dtype, value.shape)


def _tvm_dtype(value: Array) -> str:
    return str(np.dtype(numpy_dtype(str(value.dtype))))
