"""Concatenations of feature maps, delayed as long as operators can work on the parts alone.

A concatenation only copies. A pool of it is a concatenation of pools, which is smaller; an
elementwise operator may run before it as well; and a convolution of it is the sum of convolutions
of its parts, each with its share of the weights, which needs no copy at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.ir import tvm_compat
from spaces.lowering.layouts.layout_rules import CONVOLUTION, ELEMENTWISE
from spaces.lowering.relax_rewrite import (
    constant,
    replace_vars,
    straight_bindings,
    tensor_bytes,
    variables,
    with_graphs,
    write_anew,
)

_CONCAT = "relax.concat"
_POOLS = frozenset(("relax.nn.max_pool2d", "relax.nn.avg_pool2d"))
_CHANNELS = 1
_WORTH = 0.75
"""A convolution is split where its partial sums are less than this share of the copy's bytes."""


def put_off_concats(module: Any) -> Any:
    """Have graphs work on the parts of a concatenation where that moves fewer bytes.

    Only for feature maps in NCHW that are joined along their channels, in straight graphs. Sums of
    split convolutions differ from the whole ones in rounding only.
    """
    return with_graphs(module, _rewritten)


def _rewritten(function: Any) -> Any:
    bindings = straight_bindings(function)
    if not any(tvm_compat.operator_name(b.value) == _CONCAT for b in bindings or ()):
        return function
    assert bindings is not None
    parts = _parts(bindings, function.body.body)
    return _Rewriter(parts).function(function, bindings) if parts else function


def _parts(bindings: Sequence[Any], result: Any) -> frozenset[Any]:
    """Variables to replace by their parts: concatenations, and operators on each part alone."""
    users: dict[Any, list[Any]] = {}
    for binding in bindings:
        for var in variables(binding.value):
            users.setdefault(var, []).append(binding)
    shown = set(variables(result))
    kept: set[Any] = set()

    counts = _counts(bindings)

    def absorbs(user: Any, var: Any) -> bool:
        """Whether a user of a variable can work on its parts."""
        name = tvm_compat.operator_name(user.value)
        if name == CONVOLUTION:
            passed_on = tensor_bytes(user.var) * (counts[var] - 1)
            return _splittable(user.value) and passed_on < _WORTH * tensor_bytes(var)
        if name in _POOLS:
            return _in_first_layout(user.value)
        return user.var in kept

    # From the end, so that the users of a value are decided before the value.
    for binding in reversed(bindings):
        mine = users.get(binding.var, [])
        if not mine or binding.var in shown or not _is_map(binding.var):
            continue
        name = tvm_compat.operator_name(binding.value)
        if name == _CONCAT:
            fields = _fields(binding.value)
            good = binding.value.attrs.axis in (_CHANNELS, _CHANNELS - 4) and len(fields) > 1
            good = good and all(_is_map(field) for field in fields)
        else:
            good = counts[binding.var] > 1
        if good and all(absorbs(user, binding.var) for user in mine):
            kept.add(binding.var)
    return frozenset(kept)


def _counts(bindings: Sequence[Any]) -> dict[Any, int]:
    """For each variable the most parts that it is joined from."""
    counts: dict[Any, int] = {}
    for binding in bindings:
        if tvm_compat.operator_name(binding.value) == _CONCAT:
            counts[binding.var] = sum(counts.get(f, 1) for f in _fields(binding.value))
        else:
            read = [counts.get(v, 1) for v in variables(binding.value)]
            counts[binding.var] = read[0] if len(read) == 1 and _each(binding.value) else 1
    return counts


def _fields(call: Any) -> list[Any]:
    from tvm import relax

    argument = call.args[0]
    return list(argument.fields) if isinstance(argument, relax.Tuple) else []


def _is_map(expression: Any) -> bool:
    dims = tvm_compat.tensor_dims(expression)
    return dims is not None and len(dims) == 4 and tvm_compat.as_int(dims[_CHANNELS]) is not None


def _splittable(call: Any) -> bool:
    attrs = call.attrs
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout)
    return (
        layouts == ("NCHW", "OIHW", "NCHW")
        and int(attrs.groups) == 1
        and tvm_compat.is_constant(call.args[1])
        and str(attrs.out_dtype) in ("", "None", "void", "float32", "float64")
    )


def _in_first_layout(call: Any) -> bool:
    return bool(call.attrs.layout == "NCHW")


def _each(call: Any) -> bool:
    """Whether an operator does the same to each channel of its one feature map."""
    name = tvm_compat.operator_name(call)
    if name in _POOLS:
        return _in_first_layout(call)
    if name not in ELEMENTWISE:
        return False
    return not any(tvm_compat.tensor_dims(a) for a in call.args if not variables(a))


class _Rewriter:
    """Writes a graph anew with the parts of some variables in their place."""

    def __init__(self, parts: frozenset[Any]) -> None:
        from tvm import relax

        self._builder = relax.BlockBuilder()
        self._wanted = parts
        self._parts: dict[Any, list[Any]] = {}
        self._whole: dict[Any, Any] = {}

    def function(self, function: Any, bindings: Sequence[Any]) -> Any:
        """The function, written anew."""
        self._whole.update((var, var) for var in function.params)

        def emit() -> Any:
            for binding in bindings:
                self._emit(binding)
            return replace_vars(function.body.body, self._whole)

        return write_anew(self._builder, function, emit)

    def _emit(self, binding: Any) -> None:
        from tvm import relax

        value, var = binding.value, binding.var
        name = tvm_compat.operator_name(value)
        if var in self._wanted and name == _CONCAT:
            self._parts[var] = [p for field in _fields(value) for p in self._parts_of(field)]
            return
        source = next((v for v in variables(value) if v in self._parts), None)
        if source is None:
            made = replace_vars(value, self._whole)
        elif var in self._wanted:
            self._parts[var] = [
                self._put(replace_vars(value, {source: part}), var) for part in self._parts[source]
            ]
            return
        elif name == CONVOLUTION:
            made = self._sum(value, self._parts[source], var)
        else:  # a pool whose result is needed whole: the join comes after it
            from tvm.relax import op

            pooled = [replace_vars(value, {source: part}) for part in self._parts[source]]
            made = op.concat([self._put(p, var) for p in pooled], axis=_CHANNELS)
        self._whole[var] = made if isinstance(made, relax.Var) else self._put(made, var)

    def _parts_of(self, field: Any) -> list[Any]:
        return self._parts[field] if field in self._parts else [self._whole.get(field, field)]

    def _put(self, value: Any, var: Any) -> Any:
        return self._builder.emit(value, tvm_compat.variable_name(var))

    def _sum(self, call: Any, parts: Sequence[Any], var: Any) -> Any:
        """A convolution of a concatenation: the sum over parts, each with its input channels."""
        from tvm import relax
        from tvm.relax import op

        weights = call.args[1].value.numpy()
        total, start = None, 0
        for part in parts:
            channels = int(tvm_compat.as_int((tvm_compat.tensor_dims(part) or [])[_CHANNELS]) or 0)
            mine = constant(weights[:, start : start + channels].copy())
            start += channels
            product = self._put(relax.Call(call.op, [part, mine], call.attrs, call.ty_args), var)
            total = product if total is None else self._put(op.add(product, total), var)
        return total
