"""What tensor programs declare that are no part of a graph: all parameters, outputs included."""

from __future__ import annotations

from typing import Any

from spaces.frontends.declared import Declared, DeclaredInput
from spaces.ir import tvm_compat
from spaces.ir.derived_dims import name_of
from spaces.ir.symbolic import alone, is_symbolic, text_of, variables
from spaces.lowering.index_dtype import with_wide_indices
from spaces.lowering.plain_shapes import with_plain_shapes
from tuner.dynamic.shapes import Domain
from tuner.errors import TunerError


def read_declared(module: Any, domain: Domain) -> tuple[Any, Declared]:
    """A module of tensor programs with plain shapes, and its inputs.

    These are called as the buffers, led by their function's name where there are several functions.

    Args:
        domain: see `Declared`.

    Raises:
        TunerError: there is no program, a parameter is no tensor, or a dimension cannot be told.
    """
    plain = with_plain_shapes(with_wide_indices(module))
    functions = tvm_compat.prim_funcs(plain)
    if not functions:
        raise TunerError("the module holds no functions")
    inputs = []
    for name, function in functions:
        _refuse_untold(function)
        for param in function.params:
            full_name = param.name if len(functions) == 1 else f"{name}.{param.name}"
            dims = tvm_compat.param_shape(param)
            if dims is None:
                raise TunerError(f"input {full_name} is no tensor, which is not supported")
            inputs.append(DeclaredInput(full_name, tvm_compat.param_dtype(param), tuple(dims)))
    symbols = dict.fromkeys(d for i in inputs for d in i.dims or () if isinstance(d, str))
    note = " and ".join(f"{dim} is {told}" for dim, told in _meanings(module, plain).items())
    declared = Declared(tuple(inputs), tuple(symbols), domain=domain, takes_shapes=False, note=note)
    return plain, declared


def _meanings(module: Any, plain: Any) -> dict[str, str]:
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
