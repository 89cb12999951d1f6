"""A graph, node by node: what can be calculated is, the rest becomes expressions of Relax.

Each node goes one of these ways. Small integer tensors whose values are known are calculated, in
the model's own symbols (`size_operators`). Operators that hold graphs are imported as what these
come to (`control_flow`), and so are those that are made of others (`functions`, `contributed`).
Some have converters here (`operators`). Everything else is for the converters of TVM's own
importer, which see known sizes as tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from spaces.frontends.inputs import InputSpec
from spaces.frontends.onnx.contributed.registry import find_contributed
from spaces.frontends.onnx.control_flow import CONTROL_FLOW
from spaces.frontends.onnx.functions import find_definition, nodes_of, opset_of
from spaces.frontends.onnx.honoured.check import (
    check_honoured,
    check_version,
    not_computed,
    with_defaults,
)
from spaces.frontends.onnx.index_bounds import largest_number, require_rows
from spaces.frontends.onnx.narrow_types import (
    check_inputs,
    check_narrow,
    give_output,
    narrow_result,
    take_input,
    widen_array,
)
from spaces.frontends.onnx.node import (
    STANDARD_DOMAINS,
    Node,
    Requirement,
    Value,
    describe_node,
    empty_tensor,
    has_nothing,
)
from spaces.frontends.onnx.operators import convert_node, is_known_to_tvm
from spaces.frontends.onnx.over_nothing import over_nothing
from spaces.frontends.onnx.sequences import SEQUENCES, require_tensors
from spaces.frontends.onnx.size_operators import constant_of, evaluate_sizes
from spaces.frontends.onnx.sizes import MOST, Arithmetic, Size, Sizes, read_sizes
from spaces.ir import tvm_compat
from spaces.ir.element_types import numpy_dtype
from spaces.ir.symbolic import NO_VALUES, text_of
from spaces.lowering.relax_rewrite import constant
from tuner.dynamic.derived_names import bases_of, derive
from tuner.errors import TunerError, first_line

_ODD = re.compile(r"\W")
DATA_DEPENDENT = frozenset(
    {
        *{"NonZero", "NonMaxSuppression", "Unique", "Compress", "Reshape", "TopK", "Range"},
        *{"Expand", "Slice", "Split", "Tile", "OneHot", "ConstantOfShape"},
    }
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
        when it is run. Dimensions of its inputs that are named after symbols are expressions.

    Raises:
        TunerError: a node cannot be imported.
    """
    from tvm import tirx

    check_inputs(inputs)
    names = {n for i in inputs for d in i.dims if isinstance(d, str) for n in bases_of(d)}
    known = {name: tirx.Var(name, "int64") for name in sorted(names)}
    exact = {n: v // multiples[n] * multiples[n] for n, v in known.items() if n in multiples}
    functions = {(f.domain, f.name, f.overload): f for f in proto.functions}
    graph = _Graph(opset_of(proto) or 1, Arithmetic(known.values()), functions)
    try:
        _write_main(graph, proto.graph, inputs, known, exact)
    except Exception:
        tvm_compat.abandon(graph.builder)
        raise
    excesses = [required.excess for required in graph.requirements]
    return _guard(graph.builder.get(), excesses), graph.requirements


def _write_main(
    graph: _Graph,
    proto: Any,
    inputs: Sequence[InputSpec],
    known: Mapping[str, Any],
    exact: Mapping[str, Any],
) -> None:
    """Write the function "main".

    Args:
        known: symbols by name; `exact` are those that are multiples, as such.
    """
    from tvm import relax

    params = _params(inputs, known)
    with graph.builder.function("main", [*params.values()]):
        for spec in inputs:
            given = params[spec.name]
            if any(isinstance(d, str) and {*bases_of(d)} & {*exact} for d in spec.dims):
                dims = _dims(spec, {**known, **exact})
                given = graph.builder.match_cast(given, relax.TensorType(dims, spec.dtype))
            params[spec.name] = given
        with graph.builder.dataflow():
            for spec in inputs:
                value = take_input(graph.builder, params[spec.name], spec.dtype)
                value.sizes = _find_values(spec)
                graph.values[spec.name] = value
            graph.add(proto)
            outputs = [graph.output(value.name) for value in proto.output]
            whole = outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
            result = graph.builder.emit_output(whole)
        graph.builder.emit_func_output(result)


class _Graph:
    """What has been imported of a graph.

    Attributes:
        values: by name; None for an operand of a function that is left out.
    """

    def __init__(
        self, opset: int, arithmetic: Arithmetic, functions: Mapping[tuple[str, str, str], Any]
    ) -> None:
        from tvm import relax

        self.builder = relax.BlockBuilder()
        self.values: dict[str, Value | None] = {}
        self.requirements: list[Requirement] = []
        self._opset = opset
        self._arithmetic = arithmetic
        self._functions = functions
        self._constants: dict[int, tuple[Any, Value]] = {}

    def add(self, graph: Any) -> None:
        """Import constants and nodes, in order."""
        for tensor in graph.initializer:
            self.values[tensor.name] = self._constant(tensor)
        self._add_nodes(graph.node)

    def output(self, name: str) -> Any:
        """A value as an output of the model."""
        value = self._value(name)
        if not value.is_tensor:
            raise TunerError(f"output {name} is no tensor but {value.form}, which is not supported")
        return give_output(self.builder, name, value)

    def _value(self, name: str) -> Value:
        value = self.values[name]
        assert value is not None, f"{name} is left out"
        if value.missing is not None:
            raise value.missing
        return value

    def _add_nodes(self, nodes: Iterable[Any]) -> None:
        for node in nodes:
            try:
                self._add_node(node)
            except TunerError:
                raise
            except Exception as error:  # converters raise whatever they meet
                why = re.sub(r"\s+", " ", first_line(error))
                raise TunerError(f"cannot import {describe_node(node)}: {why}") from error

    def _add_node(self, node: Any) -> None:
        missing = [name for name in node.input if name and name not in self.values]
        if missing:
            raise TunerError(
                f"cannot import {describe_node(node)}: nothing computes its input {missing[0]}"
            )
        attributes = tvm_compat.onnx_attributes(node)
        inputs = tuple(self.values[name] if name else None for name in node.input)
        for value in inputs:
            if value is not None and value.missing is not None:
                raise value.missing
        seen = Node(
            node.op_type,
            describe_node(node),
            inputs,
            attributes,
            self._opset,
            tuple(map(bool, node.output)),
            self._arithmetic,
            self.requirements,
        )
        for name, value in zip(node.output, self._make(node, seen), strict=False):
            self.values[name] = value

    def _make(self, node: Any, seen: Node) -> Sequence[Value | None]:
        """What a node gives."""
        if function := self._functions.get((node.domain, node.op_type, node.overload)):
            return self._call(function, node, seen)
        if function := find_contributed(node, seen):
            return self._call(function, node, seen)
        if node.domain not in STANDARD_DOMAINS:
            if found := convert_node(node, seen, self.builder):
                return [self._keep(Value(expression=expression)) for expression in found]
            if function := find_definition(node, seen.inputs, self._opset):
                return self._call(function, node, seen)
            raise TunerError(f"the importer does not know {describe_node(node)}")
        if node.op_type in CONTROL_FLOW:
            return CONTROL_FLOW[node.op_type](seen, self.builder, self._inside)
        if node.op_type in SEQUENCES:
            return SEQUENCES[node.op_type](seen, self.builder)
        require_tensors(seen)
        check_version(seen)
        seen = with_defaults(seen)
        if node.op_type == "Constant" and "value" in seen.attributes:
            return [self._constant(seen.attributes["value"])]
        if node.op_type == "Constant" and (array := constant_of(seen.attributes)) is not None:
            return [self._keep(_constant(array))]
        if (sizes := evaluate_sizes(seen)) is not None and sizes.values.size <= MOST:
            return [Value(sizes)]
        check_narrow(seen)
        # Bound where it is first used: in that order a residual addition is fused with the
        # longer way to it.
        found = convert_node(node, seen, self.builder)
        if found is None and not is_known_to_tvm(node):
            if function := find_definition(node, seen.inputs, self._opset):
                return self._call(function, node, seen)
            raise TunerError(f"the importer does not know {describe_node(node)}")
        missing = [] if found else [*map(seen.refused, not_computed(seen))]
        found = found or self._by_tvm(node, seen)
        self._check_shapes(node, found)
        if node.op_type == "Gather":
            require_rows(seen)
        narrow = narrow_result(seen)
        made = [self._keep(Value(expression=expression, narrow=narrow)) for expression in found]
        made[0] = over_nothing(seen, made[0], self.builder)
        if missing:
            made[len(seen.outputs) - len(missing) :] = [Value(missing=why) for why in missing]
        made[0].largest = largest_number(seen)
        return made

    def _keep(self, value: Value) -> Value:
        """A value, or memory of its shape if it has no element."""
        if value.sizes is not None or not has_nothing(value.dims or ()):
            return value
        nothing = empty_tensor(self.builder, value.dims or (), value.dtype)
        return Value(expression=nothing, narrow=value.narrow)

    def _constant(self, tensor: Any) -> Value:
        """A constant of the graph, the same one each time: steps of a loop share theirs."""
        if id(tensor) not in self._constants:
            if tensor.data_type == tensor.STRING:
                raise TunerError(f"constant {tensor.name} holds strings, which are not supported")
            self._constants[id(tensor)] = tensor, self._keep(_constant(_array(tensor)))
        return self._constants[id(tensor)][1]

    def _inside(self, graph: Any, inputs: Sequence[Value | None]) -> list[Value]:
        """A graph within a node, which sees what is known so far: what it gives."""
        outside = self.values
        names = [value.name for value in graph.input]
        self.values = {**outside, **dict(zip(names, inputs, strict=True))}
        try:
            self.add(graph)
            return [self._value(value.name) for value in graph.output]
        finally:
            self.values = outside

    def _call(self, function: Any, node: Any, seen: Node) -> Sequence[Value | None]:
        """What a function gives, which sees its operands alone."""
        outside, opset = self.values, self._opset
        nodes = nodes_of(function, node, opset)
        given = [*seen.inputs, *[None] * (len(function.input) - len(seen.inputs))]
        self.values = dict(zip(function.input, given, strict=True))
        self._opset = opset_of(function) or opset
        try:
            self._add_nodes(nodes)
            names = zip(function.output, node.output, strict=False)
            return [self._value(name) if wanted else None for name, wanted in names]
        except TunerError as error:
            raise seen.refused(str(error)) from error
        finally:
            self.values, self._opset = outside, opset

    def _check_shapes(self, node: Any, found: Sequence[Any]) -> None:
        """Refuse a node whose result has less than nothing along an axis, or a shape that nobody
        can tell. Of data-dependent operators nobody can; where no dimension is symbolic, TVM finds
        a way at run time."""
        results = [Value(expression=e).dims for e in found]
        if any((tvm_compat.as_int(size) or 0) < 0 for dims in results for size in dims or ()):
            raise TunerError(f"cannot import {describe_node(node)}: it reaches beyond its operand")
        if not self._arithmetic.symbols or node.op_type in DATA_DEPENDENT:
            return
        operands = [self.values[name] for name in node.input if name]
        shapes = [value.dims for value in operands if value is not None]
        known = [dims for dims in shapes if dims is not None]
        if len(known) == len(shapes) and None in results:
            names = " and ".join(self._arithmetic.symbols)
            listed = " and ".join(",".join(map(_text, dims)) for dims in known)
            raise TunerError(
                f"cannot import {describe_node(node)}: what it makes of {listed} has no shape that "
                f"is known for all {names}; a --dim whose sizes have a common divisor may help"
            )

    def _by_tvm(self, node: Any, seen: Node) -> list[Any]:
        """All outputs of a node, by the importer of TVM."""
        from tvm import relax

        check_honoured(seen)
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
    number = tvm_compat.as_int(size)
    return text_of(size) if number is None else str(number)


def _guard(module: Any, excesses: Sequence[Size]) -> Any:
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
    guarded = relax.Function(main.params, body, main.ret_ty, attrs=main.attrs)
    functions = {gv: guarded if f.same_as(main) else f for gv, f in module.functions.items()}
    return IRModule(functions)


def _params(inputs: Sequence[InputSpec], known: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the function, each under a name of its own."""
    from tvm import relax

    params: dict[str, Any] = {}
    taken: set[str] = set()
    for spec in inputs:
        name = _ODD.sub("_", spec.name)
        name = name if name[:1].isalpha() or name[:1] == "_" else f"input_{name}"
        while name in taken:
            name += "_"
        taken.add(name)
        params[spec.name] = relax.Var(name, relax.TensorType(_dims(spec, known), spec.dtype))
    return params


def _dims(spec: InputSpec, known: Mapping[str, Any]) -> list[Size]:
    return [d if isinstance(d, int) else derive(d, known) for d in spec.dims or spec.shape]


def _find_values(spec: InputSpec) -> Sizes | None:
    """What is known of an input's values: all of them where there are none."""
    if spec.dims or 0 not in spec.shape:
        return None
    return read_sizes(np.zeros(spec.shape, numpy_dtype(spec.dtype)))


def _constant(array: np.ndarray[Any, Any]) -> Value:
    array, narrow = widen_array(array)
    sizes = read_sizes(array)
    return Value(sizes) if sizes is not None else Value(None, constant(array), narrow=narrow)


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    import onnx.numpy_helper

    return np.asarray(onnx.numpy_helper.to_array(tensor))
