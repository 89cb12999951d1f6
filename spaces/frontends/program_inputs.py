"""Inputs of tensor programs that are no part of a graph, outputs included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spaces.frontends.inputs import InputSpec, at_largest, check_dims
from spaces.ir import tvm_compat
from spaces.ir.derived_dims import base_of, name_of
from spaces.ir.symbolic import alone, is_symbolic, text_of, variables
from tuner.errors import TunerError


def meanings(module: Any, plain: Any) -> dict[str, str]:
    """What those dimensions of a plain module stand for whose names do not say it.

    Args:
        module: what `spaces.lowering.plain_shapes` made the plain one of.
    """
    from tvm.ir import Var

    programs = dict(tvm_compat.prim_funcs(plain))
    found: dict[str, str] = {}
    for name, function in tvm_compat.prim_funcs(module):
        dims = {p.name: tvm_compat.param_dims(p) or () for p in function.params}
        for param in programs[name].params:
            own = tvm_compat.param_dims(param) or ()
            for before, after in zip(dims[param.name], own, strict=True):
                if is_symbolic(before) and not isinstance(before, Var) and isinstance(after, Var):
                    found |= {} if name_of(before) else {str(after.name): text_of(before)}
    return found


def program_inputs(
    module: Any, largest: Mapping[str, int], told: Mapping[str, str]
) -> tuple[InputSpec, ...]:
    """All parameters of the tensor programs.

    Names are the buffers', led by their function's where there are several functions.

    Args:
        module: with plain shapes.
        largest: the largest value of each dimension that stays symbolic.
        told: see `meanings`.

    Raises:
        TunerError: a parameter cannot be fed with a tensor, or has a dimension of unknown sizes.
    """
    functions = tvm_compat.prim_funcs(module)
    if not functions:
        raise TunerError("the module holds no functions")
    inputs = []
    for name, function in functions:
        _refuse_untold(function)
        for param in function.params:
            full_name = param.name if len(functions) == 1 else f"{name}.{param.name}"
            declared = tvm_compat.param_shape(param)
            if declared is None:
                raise TunerError(f"parameter {full_name} is not a buffer, which is not supported")
            shape, dims = at_largest(declared, largest)
            fixed = tuple(d for d in shape if isinstance(d, int))
            if len(fixed) != len(shape):
                raise TunerError(_without_sizes(full_name, shape, told))
            if min(fixed, default=1) < 1:
                raise TunerError(
                    f"parameter {full_name} has no elements (its shape is "
                    f"{','.join(map(str, fixed))}): give the function other arguments"
                )
            inputs.append(InputSpec(full_name, fixed, tvm_compat.param_dtype(param), dims))
    check_dims(largest, [d for i in inputs for d in i.dims if isinstance(d, str)])
    return tuple(inputs)


def _refuse_untold(function: Any) -> None:
    """Refuse a program that needs a variable which is in no shape by itself.

    Any other has only variables as dimensions by now.
    """
    for param in function.params:
        for dim in tvm_compat.param_dims(param) or ():
            untold = [v for v in variables(dim) if str(v.name) not in alone(function)]
            if is_symbolic(dim) and untold:
                raise TunerError(
                    f"parameter {param.name} has the dimension {text_of(dim)}, and the program "
                    f"needs {untold[0].name}, which does not follow from that: give it a parameter "
                    f"of which {untold[0].name} is a dimension"
                )


def _without_sizes(name: str, shape: list[int | str], told: Mapping[str, str]) -> str:
    symbolic_dims = [d for d in shape if isinstance(d, str)]
    known = [f"{d} is {told[d]}" for d in symbolic_dims if d in told]
    return (
        f"parameter {name} has symbolic dimensions ({','.join(map(str, shape))})"
        + (f", where {' and '.join(known)}" if known else "")
        + f": give the sizes to tune for, for instance --dim {base_of(symbolic_dims[0])}=1..128, "
        "or make the function static, for instance by an argument for --arg"
    )
