"""Functions of a graph that another's code generator is to compile (TVM's BYOC)."""

from __future__ import annotations

from typing import Any

from spaces.ir import tvm_compat


def find_partitioned(module: Any) -> dict[str, Any]:
    """The functions that are partitioned off for a code generator, by name."""
    return {
        variable.name_hint: function
        for variable, function in module.functions.items()
        if tvm_compat.is_relax_function(function)
        and tvm_compat.attribute(function, tvm_compat.CODEGEN) is not None
    }


def put_back(lowered: Any, functions: dict[str, Any]) -> Any:
    """A lowered graph with such functions as they were: a code generator knows operators, which
    lowering turns into programs everywhere."""
    if not functions:
        return lowered
    from tvm.ir import IRModule
    from tvm.relax.transform import DeadCodeElimination

    result = IRModule(lowered.functions, attrs=lowered.attrs, global_infos=lowered.global_infos)
    kept = {variable.name_hint: variable for variable in lowered.functions}
    for name, function in functions.items():
        if name in kept:  # else nobody calls it
            result.update_func(kept[name], function)
    return DeadCodeElimination()(result)
