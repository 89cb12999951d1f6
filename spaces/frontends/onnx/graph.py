"""A graph, node by node: what can be calculated is, the rest becomes expressions of Relax.

Each node goes one of three ways. Small integer tensors whose values are known are calculated, in
the model's own symbols (`size_operators`). Operators that such sizes tell what to do are converted
here (`shape_operators`). Everything else is for the converters of TVM's own importer, which see
known sizes as tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spaces.frontends.inputs import InputSpec
from spaces.frontends.onnx.index_bounds import largest_number, require_rows
from spaces.frontends.onnx.node import Node, Requirement, Value
from spaces.frontends.onnx.shape_operators import converted
from spaces.frontends.onnx.size_operators import constant_of, evaluated
from spaces.frontends.onnx.sizes import MOST, Arithmetic, Size, known_sizes
from spaces.ir import tvm_compat
from spaces.ir.derived_dims import base_of, derived
from spaces.ir.symbolic import NO_VALUES, text_of
from tuner.errors import TunerError, first_line

_ODD = re.compile(r"\W")
STANDARD_DOMAINS = ("", "ai.onnx")
DATA_DEPENDENT = frozenset(
    {"NonZero", "NonMaxSuppression", "Unique", "Compress", "Reshape", "TopK", "Range", "Expand"}
)
"""Operators whose results may have shapes that follow from what is in their inputs."""


def graph_module(
    proto: Any, inputs: Sequence[InputSpec], multiples: Mapping[str, int] = NO_VALUES
) -> tuple[Any, list[Requirement]]:
    """Import a graph into Relax.

    Args:
        proto: with all data in it.
        inputs: all that has to be fed in, symbolic dimensions by name.
        multiples: numbers that some dimensions are multiples of: it takes no other sizes of these.

    Returns:
        A module with a function "main", and what it requires of its sizes: it looks at that itself
        when it is run. Dimensions of its inputs that are named after a symbol are expressions.

    Raises:
        TunerError: a node cannot be imported.
    """
    from tvm import relax, tirx

    names = {base_of(d) for spec in inputs for d in spec.dims if isinstance(d, str)}
    known = {name: tirx.Var(name, "int64") for name in sorted(names)}
    params = {spec.name: _param(spec, known) for spec in inputs}
    exact = {n: v // multiples[n] * multiples[n] for n, v in known.items() if n in multiples}
    graph = _Graph(_opset(proto), Arithmetic(known.values()))
    with graph.builder.function("main", [*params.values()]):
        for spec in inputs:
            given = params[spec.name]
            if any(isinstance(d, str) and base_of(d) in exact for d in spec.dims):
                dims = _dims(spec, {**known, **exact})
                given = graph.builder.match_cast(given, relax.TensorType(dims, spec.dtype))
            graph.values[spec.name] = Value(expression=given)
        with graph.builder.dataflow():
            graph.add(proto.graph)
            outputs = [graph.output(value.name) for value in proto.graph.output]
            whole = outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
            result = graph.builder.emit_output(whole)
        graph.builder.emit_func_output(result)
    excesses = [required.excess for required in graph.requirements]
    return _guarded(graph.builder.get(), excesses), graph.requirements


class _Graph:
    """What has been imported of a graph.

    Attributes:
        values: by name.
    """

    def __init__(self, opset: int, arithmetic: Arithmetic) -> None:
        from tvm import relax

        self.builder = relax.BlockBuilder()
        self.values: dict[str, Value] = {}
        self.requirements: list[Requirement] = []
        self._opset = opset
        self._arithmetic = arithmetic

    def add(self, graph: Any) -> None:
        """Import constants and nodes, in order."""
        for constant in graph.initializer:
            self.values[constant.name] = _constant(_array(constant))
        for node in graph.node:
            try:
                self._add_node(node)
            except TunerError:
                raise
            except Exception as error:  # converters raise whatever they meet
                why = re.sub(r"\s+", " ", first_line(error))
                raise TunerError(f"cannot import {described(node)}: {why}") from error

    def output(self, name: str) -> Any:
        """A value as an output of the model."""
        return self.values[name].tensor(self.builder)

    def _add_node(self, node: Any) -> None:
        missing = [name for name in node.input if name and name not in self.values]
        if missing:
            raise TunerError(
                f"cannot import {described(node)}: nothing computes its input {missing[0]}"
            )
        attributes = tvm_compat.onnx_attributes(node)
        inputs = tuple(self.values[name] if name else None for name in node.input)
        seen = Node(
            node.op_type, described(node), inputs, attributes, self._arithmetic, self.requirements
        )
        if node.op_type == "If":
            self._add_branch(node, seen)
        elif node.op_type == "Constant" and (array := constant_of(attributes)) is not None:
            self.values[node.output[0]] = _constant(array)
        elif (sizes := evaluated(seen)) is not None and sizes.values.size <= MOST:
            self.values[node.output[0]] = Value(sizes)
        else:
            own = converted(seen, self.builder)
            # Bound where it is first used: in that order a residual addition is fused with the
            # longer way to it.
            found = self._by_tvm(node, seen) if own is None else [self.builder.normalize(own)]
            self._check_shapes(node, found)
            if node.op_type == "Gather":
                require_rows(seen)
            for name, expression in zip(node.output, found, strict=False):
                self.values[name] = Value(expression=expression)
            self.values[node.output[0]].largest = largest_number(seen)

    def _check_shapes(self, node: Any, found: Sequence[Any]) -> None:
        """Refuse a node whose result has a shape that nobody can tell. Of data-dependent operators
        nobody can; where no dimension is symbolic, TVM finds a way at run time."""
        if not self._arithmetic.symbols or node.op_type in DATA_DEPENDENT:
            return
        shapes = [self.values[name].dims for name in node.input if name]
        known = [dims for dims in shapes if dims is not None]
        if len(known) == len(shapes) and any(Value(expression=e).dims is None for e in found):
            names = " and ".join(self._arithmetic.symbols)
            listed = " and ".join(",".join(map(_text, dims)) for dims in known)
            raise TunerError(
                f"cannot import {described(node)}: what it makes of {listed} has no shape that is "
                f"known for all {names}; a --dim whose sizes have a common divisor may help"
            )

    def _add_branch(self, node: Any, seen: Node) -> None:
        """The branch of an `If` that is taken, if that is known."""
        condition = seen.numbers(0)
        if condition is None:
            raise TunerError(
                f"cannot import {described(node)}: which branch is taken is known only when the "
                "model runs"
            )
        branch = seen.attributes["then_branch" if condition[0] else "else_branch"]
        self.add(branch)
        for name, value in zip(node.output, branch.output, strict=True):
            self.values[name] = self.values[value.name]

    def _by_tvm(self, node: Any, seen: Node) -> list[Any]:
        """All outputs of a node, by the importer of TVM."""
        from tvm import relax

        operands = [None if v is None else v.tensor(self.builder) for v in seen.inputs]
        made = tvm_compat.onnx_converted(
            self.builder, node, operands, dict(seen.attributes), self._opset
        )
        if isinstance(made, relax.Tuple):
            return [*made.fields]
        if isinstance(made.ty, relax.TupleType):
            number = len(made.ty.fields)
            return [self.builder.emit(relax.TupleGetItem(made, n)) for n in range(number)]
        return [made]


def _text(size: Size) -> str:
    number = tvm_compat.known_int(size)
    return text_of(size) if number is None else str(number)


def _guarded(module: Any, excesses: Sequence[Size]) -> Any:
    """The module with a main that first looks whether any of these is above 0, and ends with an
    error if so."""
    if not excesses:
        return module
    from tvm import relax, tirx
    from tvm.ir import IRModule

    main = module["main"]
    above = [tirx.max(excess, tirx.const(0, "int64")) for excess in excesses]
    none = relax.ShapeType(values=[tirx.const(0, "int64")] * len(above))
    found = relax.Var("excess", relax.ShapeType(values=above))
    guards = [
        relax.VarBinding(found, relax.ShapeExpr(above)),
        relax.MatchCast(relax.Var("no_excess", none), found, none),
    ]
    body = relax.SeqExpr([relax.BindingBlock(guards), *main.body.blocks], main.body.body)
    return IRModule({"main": relax.Function(main.params, body, main.ret_ty, attrs=main.attrs)})


def described(node: Any) -> str:
    """A node as a message calls it."""
    domain = "" if node.domain in STANDARD_DOMAINS else f"{node.domain}."
    return f"operator {domain}{node.op_type} (node {node.name or f'of output {node.output[0]}'})"


def _param(spec: InputSpec, known: Mapping[str, Any]) -> Any:
    from tvm import relax

    name = _ODD.sub("_", spec.name)
    name = name if name[:1].isalpha() or name[:1] == "_" else f"input_{name}"
    return relax.Var(name, relax.TensorType(_dims(spec, known), spec.dtype))


def _dims(spec: InputSpec, known: Mapping[str, Any]) -> list[Size]:
    return [d if isinstance(d, int) else derived(d, known) for d in spec.dims or spec.shape]


def _constant(array: np.ndarray[Any, Any]) -> Value:
    from tvm import relax

    sizes = known_sizes(array)
    return (
        Value(sizes)
        if sizes is not None
        else Value(expression=relax.const(array, str(array.dtype)))
    )


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    import onnx.numpy_helper

    return np.asarray(onnx.numpy_helper.to_array(tensor))


def _opset(proto: Any) -> int:
    versions = [o.version for o in proto.opset_import if o.domain in STANDARD_DOMAINS]
    return int(versions[0]) if versions else 1
