"""Inputs of a module that is already TVM's, and how their symbolic shapes are bound to sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from spaces.frontends.inputs import InputSpec, Shape, at_largest, check_dims, check_names, fix_shape
from spaces.frontends.program_inputs import meanings, program_inputs
from spaces.ir import tvm_compat
from spaces.ir.symbolic import symbols
from spaces.lowering.index_dtype import with_wide_indices
from spaces.lowering.plain_shapes import declared_shape, with_plain_inputs, with_plain_shapes
from tuner.errors import TunerError
from tuner.shapes import NO_DOMAIN, Domain


def close_shapes(
    module: Any, shapes: Mapping[str, Shape], domain: Domain = NO_DOMAIN
) -> tuple[Any, tuple[InputSpec, ...]]:
    """Bind the symbolic dimensions of a graph, and say what its inputs are.

    Args:
        module: with a Relax function "main", or with tensor programs only.
        shapes: shape of each input of "main" that is dynamic.
        domain: of the dimensions that stay symbolic.

    Raises:
        TunerError: an input is dynamic or unknown, or cannot be fed with a tensor, or a size is
            outside of what the graph says that it takes.
    """
    largest = domain.largest
    if not tvm_compat.has_relax(module):
        plain = with_plain_shapes(with_wide_indices(module))
        check_names(list(shapes), [], "--shape")
        return plain, program_inputs(plain, largest, meanings(module, plain))
    if "main" not in [gv.name_hint for gv in module.get_global_vars()]:
        raise TunerError('the module holds Relax functions, but none called "main"')
    module = with_plain_inputs(module)
    params = list(module["main"].params)
    check_names(list(shapes), [p.name for p in params], "--shape")
    known = _bindings(module["main"], shapes)
    symbolic_dims = [d for p in params for d in declared_shape(p) or () if isinstance(d, str)]
    check_dims(largest, [d for d in symbolic_dims if d not in known])
    _check_bounds(module["main"], known, domain)
    inputs = tuple(_input(p, shapes.get(p.name), known, largest) for p in params)
    return _bind(_unbounded(module), known), inputs


def _bindings(main: Any, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Value of each symbolic dimension that a given shape determines."""
    known: dict[str, int] = {}
    alone = symbols(main)
    for param in main.params:
        declared, given = declared_shape(param), shapes.get(param.name)
        if declared is not None and given is not None:
            fix_shape(param.name, declared, given)
            for dim, size in zip(declared, given, strict=True):
                if dim in alone:  # an expression binds nothing
                    known.setdefault(str(dim), size)
    return known


def _check_bounds(main: Any, known: Mapping[str, int], domain: Domain) -> None:
    """Refuse sizes outside of the bounds that importers attach to a graph.

    Lower bounds up to 2 are left out: exporters write 2 for any dimension that is not fixed, and
    run the model with 1 all the same.
    """
    lower = dict(tvm_compat.attribute(main, tvm_compat.LOWER_BOUNDS) or {})
    upper = dict(tvm_compat.attribute(main, tvm_compat.UPPER_BOUNDS) or {})

    def bound(dim: str, size: int) -> str:
        least, most = int(lower.get(dim, 0)), int(upper.get(dim, size))
        if size > most:
            return f"at most {most}"
        return f"at least {least}" if size < least and least > 2 else ""

    for dim, size in known.items():
        if broken := bound(dim, size):
            raise TunerError(f"--shape: {_owner(main, dim)} has to be {broken}, not {size}")
    for dim, sizes in domain.dims:
        for size in (sizes[0], sizes[-1]):
            if broken := bound(dim, size):
                raise TunerError(f"--dim {dim}: the model takes {broken}, not {size}")


def _unbounded(module: Any) -> Any:
    """The module without the bounds of its dimensions.

    TVM would plan the memory of intermediate values for the upper one, and a shape beyond it
    could not run.
    """
    from tvm.ir import IRModule

    main = module["main"]
    for bound in (tvm_compat.LOWER_BOUNDS, tvm_compat.UPPER_BOUNDS):
        if tvm_compat.attribute(main, bound) is not None:
            main = main.without_attr(bound)
    if main.same_as(module["main"]):
        return module
    result = IRModule(module.functions, attrs=module.attrs)
    result.update_func(result.get_global_var("main"), main)
    return result


def _owner(main: Any, dim: str) -> str:
    """Where in the inputs a symbolic dimension is first met."""
    return next(
        f"dimension {shape.index(dim)} of {param.name}"
        for param in main.params
        if dim in (shape := tvm_compat.param_shape(param) or [])
    )


def _input(
    param: Any, given: Shape | None, known: Mapping[str, int], largest: Mapping[str, int]
) -> InputSpec:
    declared = declared_shape(param)
    if declared is None:
        raise TunerError(f"input {param.name} is not a tensor of known rank: not supported")
    known_dims, _ = at_largest(declared, known)
    bound, dims = at_largest(known_dims, largest)
    shape = fix_shape(param.name, bound, given)
    return InputSpec(param.name, shape, tvm_compat.param_dtype(param), dims)


def _bind(module: Any, known: Mapping[str, int]) -> Any:
    if not known:
        return module
    from tvm import relax

    try:
        return relax.transform.BindSymbolicVars(dict(known), "main")(module)
    except Exception as error:  # operators raise what they like on shapes that do not fit
        raise TunerError(f"the model does not take these shapes: {_why(error)}") from error


def _why(error: Exception) -> str:
    """What an operator says, without the description of itself that it starts with."""
    text = " ".join(str(error).split())
    return re.sub(r"^In ir\.Op\(.*?name=\"(.*?)\".*?support_level=\d+\),", r"\1:", text)[:200]
