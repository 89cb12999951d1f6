"""Modules that are TVM's already: what they declare, and their dimensions bound to sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spaces.frontends.declared import Declared, DeclaredInput, ModelKind
from spaces.frontends.inputs import InputSpec
from spaces.frontends.program_inputs import read_declared
from spaces.ir import tvm_compat
from spaces.ir.symbolic import symbols
from spaces.lowering.plain_shapes import name_shape, with_plain_inputs
from tuner.checks import LARGEST
from tuner.dynamic.derived_names import derive
from tuner.dynamic.shapes import NO_DOMAIN, Domain
from tuner.errors import TunerError

LEAST_EXPORTED = 2
"""The least size that exporters write of any dimension that is not fixed. They run models with 1
all the same."""


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """A module as a `spaces.frontends.declared.ModelSource`.

    Attributes:
        module: with a Relax function "main", or tensor programs only.
        file: SHA-256 of the file that it was read from, to go on with; None where there is none.
        torch_program: the program of PyTorch that it is; None of any other.
    """

    name: str
    kind: ModelKind
    module: Any
    declared: Declared
    file: Any = None
    torch_program: Any = None

    def imported(self, inputs: Sequence[InputSpec], _domain: Domain) -> Any:
        """The module with those symbols bound that the inputs have as numbers, or as what follows
        from others."""
        if tvm_compat.has_relax(self.module):
            known = symbols(self.module["main"])
            return _bound(self.module, _sizes(self.declared, inputs, known))
        _refuse_empty(inputs)
        return self.module

    def content_hash(self, module: Any, inputs: Sequence[InputSpec]) -> str:
        """Of the file and the inputs; of a module from elsewhere its structural hash."""
        if self.file is None:
            return tvm_compat.structural_hash_hex(tvm_compat.without_origins(module))
        digest = self.file.copy()
        digest.update(repr([(i.name, i.dims or i.shape, i.dtype) for i in inputs]).encode())
        return str(digest.hexdigest()[:16])


def read_module(
    module: Any, name: str, kind: ModelKind, *, domain: Domain = NO_DOMAIN, note: str = ""
) -> ModuleSource:
    """What a module declares of its inputs.

    Args:
        module: with a Relax function "main", or with tensor programs only.
        domain, note: see `Declared`.

    Raises:
        TunerError: an input cannot be fed with a tensor, or has a dimension that nobody can tell.
    """
    if not tvm_compat.has_relax(module):
        plain, declared = read_declared(module, domain)
        return ModuleSource(name, kind, plain, declared)
    if "main" not in [gv.name_hint for gv in module.get_global_vars()]:
        raise TunerError('the module holds Relax functions, but none called "main"')
    module = with_plain_inputs(module)
    main = module["main"]
    inputs = tuple(_declare(param) for param in main.params)
    known = tuple(symbols(main))
    note = note if known else ""
    declared = Declared(inputs, known, _bounds(main), domain, note=note)
    return ModuleSource(name, kind, _drop_bounds(module), declared)


def _declare(param: Any) -> DeclaredInput:
    dims = name_shape(param)
    if dims is None:
        raise TunerError(f"input {param.name} is no tensor of known rank, which is not supported")
    return DeclaredInput(str(param.name), tvm_compat.param_dtype(param), tuple(dims))


def _bounds(main: Any) -> dict[str, tuple[int, int]]:
    """The least and largest values that importers attach to a graph, by dimension."""
    lower = dict(tvm_compat.attribute(main, tvm_compat.LOWER_BOUNDS) or {})
    upper = dict(tvm_compat.attribute(main, tvm_compat.UPPER_BOUNDS) or {})
    least = {dim: int(size) for dim, size in lower.items() if int(size) > LEAST_EXPORTED}
    return {
        str(dim): (least.get(dim, 0), int(upper.get(dim, LARGEST))) for dim in {**least, **upper}
    }


def _drop_bounds(module: Any) -> Any:
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


def _sizes(
    declared: Declared, inputs: Sequence[InputSpec], known: Mapping[str, Any]
) -> dict[str, Any]:
    """Values of the symbols that are something else in the inputs.

    Args:
        known: the symbols, by name.
    """
    pairs = (
        pair
        for before, after in zip(declared.inputs, inputs, strict=True)
        for pair in zip(before.dims or (), after.dims or after.shape, strict=True)
    )
    return {
        dim: size if isinstance(size, int) else derive(size, known)
        for dim, size in pairs
        if dim in declared.symbols and size != dim
    }


def _bound(module: Any, sizes: Mapping[str, Any]) -> Any:
    if not sizes:
        return module
    from tvm import relax

    try:
        return relax.transform.BindSymbolicVars(dict(sizes), "main")(module)
    except Exception as error:  # operators raise what they like on shapes that do not fit
        raise TunerError(f"the model does not take these shapes: {_why(error)}") from error


def _why(error: Exception) -> str:
    """What an operator says, without the description of itself that it starts with."""
    text = " ".join(str(error).split())
    return re.sub(r"^In ir\.Op\(.*?name=\"(.*?)\".*?support_level=\d+\),", r"\1:", text)[:200]


def _refuse_empty(inputs: Iterable[InputSpec]) -> None:
    """Refuse a program of nothing."""
    for spec in inputs:
        if min(spec.shape, default=1) < 1:
            raise TunerError(
                f"input {spec.name} has no elements (its shape is "
                f"{','.join(map(str, spec.shape))}): give the function other arguments"
            )
