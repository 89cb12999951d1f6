"""A graph whose attentions are tensor programs."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.element_types import HALVES
from spaces.ir.guard import Unsuitable, note
from spaces.lowering.attention.description import SUMS
from spaces.lowering.attention.find import Found, Reader
from spaces.lowering.attention.program import write_attention
from spaces.lowering.relax_rewrite import (
    builder_without,
    replace_vars,
    straight_bindings,
    variables,
    write_anew,
)
from spaces.targets.gpu import COPIES_AHEAD
from spaces.targets.nvidia.numbers import architecture_of


def fuse_cpu_attention(module: Any, _target: Any) -> Any:
    """See `fuse_attention`: a CPU's of any floats."""
    return fuse_attention(module, (*HALVES, SUMS))


def fuse_gpu_attention(module: Any, target: Any) -> Any:
    """See `fuse_attention`: a CUDA target's of halves, where its tensor cores multiply these."""
    fits = architecture_of(str(target.attrs.get("arch", ""))) >= COPIES_AHEAD
    return fuse_attention(module, HALVES) if fits else module


def fuse_attention(module: Any, kinds: Collection[str]) -> Any:
    """A module whose graph "main" calls a tensor program for each attention.

    What is left of their steps is not read any more, and is left to `DeadCodeElimination`.

    Args:
        kinds: types of queries, keys and values of which this is done.
    """
    named = {str(variable.name_hint): f for variable, f in module.functions.items()}
    graph: Any = named.get("main")
    bindings = straight_bindings(graph) if tvm_compat.is_relax_function(graph) else None
    if bindings is None:
        return module
    found = _find_all(graph, bindings, kinds)
    if not found:
        return module
    builder = builder_without(module, {"main"})
    whole: dict[Any, Any] = {var: var for var in graph.params}

    def emit() -> Any:
        for binding in bindings:
            known = found.get(binding.var)
            value = (
                replace_vars(binding.value, whole)
                if known is None
                else _call(builder, known, whole)
            )
            whole[binding.var] = builder.emit(value, tvm_compat.variable_name(binding.var))
        return replace_vars(graph.body.body, whole)

    written = write_anew(builder, graph, emit)
    made = builder.get()
    made.update_func(made.get_global_var("main"), written)
    return made


def _call(builder: Any, found: Found, whole: Mapping[Any, Any]) -> Any:
    from tvm import relax

    program = builder.add_func(write_attention(found.attention, found.parameters), "attention")
    tensors = [replace_vars(tensor, whole) for tensor in found.tensors]
    return relax.call_tir(program, tensors, found.result.ty)


def _find_all(graph: Any, bindings: Sequence[Any], kinds: Collection[str]) -> dict[Any, Found]:
    """The attentions of a graph, by the variables that are their results."""
    values = {binding.var: binding.value for binding in bindings}
    users: defaultdict[Any, list[Any]] = defaultdict(list)
    for binding in bindings:
        for var in variables(binding.value):
            users[var].append(binding.var)
    for var in variables(graph.body.body):
        users[var].append(None)  # read by whoever calls the graph
    found = {}
    for var, value in values.items():
        if tvm_compat.operator_name(value) != "relax.matmul":
            continue
        try:
            known = Reader(values, users, kinds).read(var)
        except Unsuitable:
            continue
        except Exception as error:  # TVM raises whatever its C++ side threw
            note(error, "attention stays as it is", level=logging.WARNING)
            continue
        found[known.result] = known
    return {
        var: known for var, known in found.items() if not _is_needed(known, found, values, graph)
    }


def _is_needed(
    known: Found, found: Mapping[Any, Found], values: Mapping[Any, Any], graph: Any
) -> bool:
    """Whether weights are read by others too, who would compute them once more."""
    seen: set[Any] = set()
    todo = [*variables(graph.body.body)]
    while todo:
        var = todo.pop()
        if var in seen or var not in values:
            continue
        seen.add(var)
        own = found.get(var)
        todo += own.tensors if own is not None else variables(values[var])
    return known.softmax in seen
