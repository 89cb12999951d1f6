"""Which inputs of a model are integers that it divides by, where a zero would crash it."""

from __future__ import annotations

from typing import Any

from spaces.check.draws import divisors
from spaces.ir import tvm_compat
from spaces.lowering.relax_rewrite import tir_calls


def find_divisors(lowered: Any) -> frozenset[int]:
    """Positions among the inputs of a lowered model, see `spaces.frontends.inputs.make_inputs`.

    Of a graph those that a program takes as they are.
    """
    programs = tvm_compat.prim_funcs(lowered)
    found: set[int] = set()
    if not tvm_compat.has_relax(lowered):
        begin = 0
        for _, function in programs:
            found |= {begin + i for i in divisors(function)}
            begin += len(function.params)
        return frozenset(found)
    inputs = list(lowered["main"].params)
    divide = {name: divisors(function) for name, function in programs}
    for call in tir_calls(lowered):
        given = list(call.args[1].fields)
        taken = [given[i] for i in divide[str(call.args[0].name_hint)] if i < len(given)]
        found |= {n for n, one in enumerate(inputs) if any(one.same_as(each) for each in taken)}
    return frozenset(found)
