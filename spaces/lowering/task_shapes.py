"""The shapes that a tensor program meets in a model with symbolic dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.symbolic import is_symbolic, symbols, value_of, variables
from spaces.lowering.relax_rewrite import tir_calls
from tuner.dynamic.derived_names import bases_of, derive
from tuner.dynamic.shapes import MOST_SHAPES, merge_shapes, sample_shapes
from tuner.errors import TunerError
from tuner.task import Instance, Shapes


def shapes_of(lowered: Any, name: str, shapes: Shapes) -> Shapes:
    """The instances of one program's own symbols, weighted.

    In a graph they follow from its calls; a program alone names its symbols after the model's
    dimensions.

    Args:
        name: name of the program in the module.
        shapes: instances of the model's dimensions.

    Returns:
        At most `tuner.dynamic.shapes.MOST_SHAPES`, without those of nothing where there are others;
        empty where the program has no symbols.

    Raises:
        TunerError: a symbol has no value, or one that no shape can have.
    """
    own = symbols(lowered[name])
    if not own:
        return ()
    calls = _calls(lowered, name) or [{}]
    graph_dims = {
        str(var.name) for given in calls for dim in given.values() for var in variables(dim)
    }
    found: list[tuple[Instance, float]] = []
    for instance, weight in shapes or (((), 1.0),):
        values = dict(instance)
        for dim in graph_dims:
            if (size := derive(dim, values)) is not None:
                values[dim] = size
        for given in calls:
            pairs = ((symbol, _value(symbol, given, values)) for symbol in own)
            found.append((tuple(sorted(pairs)), weight))
    some = [(instance, weight) for instance, weight in found if all(n for _, n in instance)]
    return sample_shapes(merge_shapes(tuple(some or found)), MOST_SHAPES)


def depending_on_data(lowered: Any, shapes: Shapes) -> frozenset[str]:
    """Programs whose shapes depend on values that a run computes, not only on the inputs' shapes:
    after `NonZero`, say, or on the boxes that a suppression leaves.

    Args:
        shapes: instances of the model's dimensions.
    """
    graphs = [f for f in lowered.functions.values() if tvm_compat.is_relax_function(f)]
    known = {name for graph in graphs for name in symbols(graph)}
    values = dict(shapes[0][0]) if shapes else {}
    return frozenset(
        name
        for name, given in _all_calls(lowered)
        for dim in given.values()
        for var in variables(dim)
        if str(var.name) not in known and derive(str(var.name), values) is None
    )


def _value(symbol: str, given: Mapping[str, Any], values: Mapping[str, int]) -> int:
    value = value_of(given[symbol], values) if symbol in given else derive(symbol, values)
    if value is None:
        raise TunerError(
            f"dimension {symbol} has no domain: give the sizes to tune for, "
            f"--dim {bases_of(symbol)[0]}=1..128"
        )
    if value < 0:
        shape = ", ".join(f"{name}={value}" for name, value in values.items())
        raise TunerError(f"--dim: with {shape} the dimension {symbol} is below 0")
    return value


def _calls(lowered: Any, name: str) -> list[dict[str, Any]]:
    """For each call of a program, the graph's dimensions that its symbols stand for."""
    return [given for _, given in _all_calls(lowered, name)]


def _all_calls(lowered: Any, only: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each call of any program, or of one: its name, and the dimensions of its symbols."""
    for call in tir_calls(lowered):
        name = str(call.args[0].name_hint)
        if only in ("", name):
            outputs = list(getattr(call.ty, "fields", None) or [call.ty])
            types = [*(a.ty for a in call.args[1].fields), *outputs]
            yield name, _bound(lowered[name], types)


def _bound(function: Any, types: list[Any]) -> dict[str, Any]:
    bound: dict[str, Any] = {}
    for param, given in zip(function.params, types, strict=False):
        dims = tvm_compat.param_dims(param)
        shape = getattr(given, "shape", None)
        values = list(getattr(shape, "values", shape) or ())
        for dim, value in zip(dims or (), values, strict=False):
            if is_symbolic(dim):
                bound.setdefault(tvm_compat.dim_name(dim), value)
    return bound
