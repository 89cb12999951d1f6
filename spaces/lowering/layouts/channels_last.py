"""Convolutions and the operators between them, moved to channels-last (NHWC) before operators
become programs.

Weights are constants and change layout here; the conversions that remain are those between parts of
the graph in different layouts, as `spaces.lowering.layouts.layout_choice` decided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from spaces.ir import tvm_compat
from spaces.lowering.layouts.gains import CPU, Gains
from spaces.lowering.layouts.layout_choice import Node, choose_layouts
from spaces.lowering.layouts.layout_rules import (
    CONVOLUTION,
    POOLS,
    TO_FIRST,
    TO_LAST,
    operands,
    permute_constant,
    rewrite_of,
)
from spaces.lowering.relax_rewrite import (
    rank,
    straight_bindings,
    tensor_bytes,
    variables,
    with_graphs,
    write_anew,
)

_NOT_CONVERTED = 1 << 50
"""Price of converting a tuple, which is never done: its items are converted."""


def channels_last(module: Any, gains: Gains = CPU) -> Any:
    """Run each graph's operations channels-last where that pays.

    Graphs with control flow, and those without convolutions that gain, stay as they are.
    """
    return with_graphs(module, lambda graph: _convert(graph, gains))


def conversions(module: Any) -> int:
    """The number of operators in a module's graphs that change the order of axes."""
    return sum(
        tvm_compat.operator_name(binding.value) == "relax.permute_dims"
        for function in module.functions.values()
        if tvm_compat.is_relax_function(function)
        for binding in straight_bindings(function) or ()
    )


def _convert(function: Any, gains: Gains) -> Any:
    bindings = straight_bindings(function)
    if bindings is None:
        return function
    convolutions = [b for b in bindings if tvm_compat.operator_name(b.value) == CONVOLUTION]
    if not any(_gain(b.value, b.var, gains) for b in convolutions):
        return function
    choice = choose_layouts(graph_nodes(function, bindings, gains))
    chosen = choice[len(function.params) : len(function.params) + len(bindings)]
    return _Rewriter(gains).function(function, bindings, chosen) if any(chosen) else function


def graph_nodes(function: Any, bindings: Sequence[Any], gains: Gains = CPU) -> list[Node]:
    """A graph for the layout choice: parameters, bindings, and one node that reads the result."""
    from tvm import relax

    number = {var: i for i, var in enumerate(function.params)}
    nodes = [Node(result_bytes=_conversion_bytes(var), fixed=True) for var in function.params]
    for binding in bindings:
        value = binding.value
        read = tuple(dict.fromkeys(number[v] for v in variables(value)))
        if isinstance(value, relax.TupleGetItem) and isinstance(value.tuple_value, relax.Var):
            nodes.append(Node(read, _conversion_bytes(binding.var), tied=True))
        elif isinstance(value, relax.Call) and rewrite_of(value, gains) is not None:
            result = _conversion_bytes(binding.var)
            nodes.append(Node(read, result, _gain(value, binding.var, gains)))
        else:
            cancels = tvm_compat.read_permutation(value) == TO_FIRST
            nodes.append(Node(read, 0 if cancels else _conversion_bytes(binding.var), fixed=True))
        number[binding.var] = len(nodes) - 1
    read = tuple(dict.fromkeys(number[v] for v in variables(function.body.body)))
    return [*nodes, Node(read, fixed=True)]


def _gain(call: Any, var: Any, gains: Gains) -> int:
    name = tvm_compat.operator_name(call)
    if name in POOLS:
        return tensor_bytes(var)
    if name != CONVOLUTION:
        return 0
    weight = tvm_compat.tensor_dims(call.args[1]) or ()
    outputs = math.prod(tvm_compat.as_int(d) or 1 for d in tvm_compat.tensor_dims(var) or ())
    flops = 2 * outputs * math.prod(tvm_compat.as_int(d) or 1 for d in weight[1:])
    return gains.of_convolution(flops, str(call.args[0].ty.dtype))


def _conversion_bytes(var: Any) -> int:
    """Bytes that converting a value moves: 0 if it is no feature map, or a mere reshape."""
    from tvm import relax

    if isinstance(var.ty, relax.TupleType):
        return _NOT_CONVERTED
    return 0 if rank(var) != 4 or _is_reshape(tvm_compat.tensor_dims(var)) else tensor_bytes(var)


def _is_reshape(dims: Any) -> bool:
    """Whether a tensor of these dimensions, in NCHW, is the same in memory in both layouts."""
    sizes = [tvm_compat.as_int(d) for d in dims]
    return None not in sizes and (sizes[1] == 1 or sizes[2] == sizes[3] == 1)


class _Rewriter:
    """Writes a graph anew, each binding in the layout chosen for it."""

    def __init__(self, gains: Gains) -> None:
        from tvm import relax

        self._gains = gains
        self._builder = relax.BlockBuilder()
        self._first: dict[Any, Any] = {}
        self._last: dict[Any, Any] = {}
        self._permuted: dict[Any, tuple[Any, tuple[int, ...]]] = {}

    def function(self, function: Any, bindings: Sequence[Any], chosen: Sequence[bool]) -> Any:
        """The function, written anew."""
        self._first.update((var, var) for var in function.params)

        def emit() -> Any:
            for binding, last in zip(bindings, chosen, strict=True):
                self._emit(binding, last)
            return self._as_first(function.body.body)

        return write_anew(self._builder, function, emit)

    def _emit(self, binding: Any, last: bool) -> None:
        from tvm import relax

        value, var = binding.value, binding.var
        if not last:
            self._first[var] = self._put(self._as_first(value), var)
        elif isinstance(value, relax.TupleGetItem):
            item = relax.TupleGetItem(self._last[value.tuple_value], value.index)
            self._last[var] = self._put(item, var)
        else:
            rewrite = rewrite_of(value, self._gains)
            assert rewrite is not None
            made = rewrite(value, [self._as_last(operand) for operand in operands(value)])
            # A result that is no feature map is the same in both layouts.
            known = self._last if _is_moved(var) else self._first
            known[var] = self._put(made, var)

    def _put(self, value: Any, var: Any) -> Any:
        emitted = self._builder.emit(value, tvm_compat.variable_name(var))
        if (axes := tvm_compat.read_permutation(value)) is not None:
            self._permuted[emitted] = (value.args[0], axes)
        return emitted

    def _as_first(self, expression: Any) -> Any:
        """An expression with every variable channels-first."""
        from tvm import relax

        if isinstance(expression, relax.Var):
            if expression not in self._first and expression in self._last:
                self._first[expression] = self._order(self._last[expression], TO_FIRST, expression)
            return self._first.get(expression, expression)
        if isinstance(expression, relax.Tuple):
            return relax.Tuple([self._as_first(field) for field in expression.fields])
        if isinstance(expression, relax.TupleGetItem):
            return relax.TupleGetItem(self._as_first(expression.tuple_value), expression.index)
        if isinstance(expression, relax.Call):
            arguments = [self._as_first(argument) for argument in expression.args]
            if (axes := tvm_compat.read_permutation(expression)) is not None:
                return self._permutation(arguments[0], axes)
            return relax.Call(expression.op, arguments, expression.attrs, expression.ty_args)
        return expression

    def _as_last(self, operand: Any) -> Any:
        """An operand of a channels-last operation."""
        from tvm.relax import op

        dims = tvm_compat.tensor_dims(operand)
        if not dims:  # a number, or no tensor
            return self._as_first(operand)
        if tvm_compat.is_constant(operand):
            return permute_constant(operand, TO_LAST)
        if operand not in self._last:
            value = self._first[operand]
            if len(dims) < 4:
                value = self._builder.emit(op.expand_dims(value, list(range(4 - len(dims)))))
            self._last[operand] = self._order(value, TO_LAST, operand)
        return self._last[operand]

    def _order(self, value: Any, axes: tuple[int, ...], original: Any) -> Any:
        """A value with its axes in another order."""
        from tvm.relax import op

        dims = tvm_compat.tensor_dims(value) or []
        # Take the dimensions of whichever is in NCHW.
        if _is_reshape(dims if axes == TO_LAST else tvm_compat.tensor_dims(original)):
            return self._builder.emit(op.reshape(value, [dims[axis] for axis in axes]))
        return self._put(self._permutation(value, axes), original)

    def _permutation(self, value: Any, axes: tuple[int, ...]) -> Any:
        """A call that reorders axes, fused with the one that made its argument."""
        from tvm.relax import op

        if value in self._permuted:
            source, before = self._permuted[value]
            axes, value = tuple(before[axis] for axis in axes), source
        return value if axes == tuple(sorted(axes)) else op.permute_dims(value, axes)


def _is_moved(var: Any) -> bool:
    """Whether a result differs between layouts: a feature map, or several."""
    from tvm import relax

    return isinstance(var.ty, relax.TupleType) or rank(var) == 4
