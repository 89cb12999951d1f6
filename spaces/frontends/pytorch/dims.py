"""Names of the symbolic dimensions of `torch.export` archives.

An archive does not keep the names of `torch.export.Dim`: in it a dimension is `s77` or the like,
another one whenever it is exported. So a dimension is called after the first input and axis that
it is the size of, `x_0`. One that inputs have only within expressions, as `2 * n`, is the base of
the first of these, `x_0_base`. Names of the user's choice can be kept in the archive, in an extra
file: `torch.export.save(program, path, extra_files={"dims.json": '{"x_0": "batch"}'})`.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spaces.frontends.declared import Declared
from spaces.ir import tvm_compat
from spaces.ir.symbolic import is_symbolic, symbols, variables
from tuner.dynamic.derived_names import bases_of, rename
from tuner.errors import TunerError

NAMES_FILE = "dims.json"
NAMES_NOTE = f"torch.export does not keep the names of Dim, {NAMES_FILE} in an archive can"
_PLACES = (f"/extra/{NAMES_FILE}", f"extra_files/{NAMES_FILE}")
"""Where an archive keeps an extra file; the second is what PyTorch 2.7 and older wrote."""
_Dim = tuple[str, list[str], bool]
"""The place of a symbolic dimension, the symbols in it, and whether it is one by itself."""


def read_kept_names(path: Path) -> dict[str, str]:
    """Names by place, from an archive's extra file; empty where it has none.

    Raises:
        TunerError: that file is broken.
    """
    with zipfile.ZipFile(path) as archive:
        file = next((n for n in archive.namelist() if n.endswith(_PLACES)), None)
        if file is None:
            return {}
        try:
            kept = json.loads(archive.read(file))
        except (ValueError, RecursionError) as error:
            raise TunerError(f"{path}: {NAMES_FILE} is not JSON: {error}") from error
    if not isinstance(kept, dict):
        raise TunerError(f'{path}: {NAMES_FILE}: write an object such as {{"x_0": "batch"}}')
    for name in kept.values():
        if not isinstance(name, str) or not name.isidentifier():
            raise TunerError(f"{path}: {NAMES_FILE}: {str(name)[:40]!r} is no name")
    return kept


def with_named_dims(module: Any, kept: Mapping[str, str], path: Path) -> Any:
    """An imported archive whose symbols have the names that users know them by.

    Args:
        kept: the names that were kept with it, by place, see `read_kept_names`.
        path: of the archive, for messages.

    Raises:
        TunerError: the names do not fit its dimensions.
    """
    from tvm import tirx
    from tvm.ir import IRModule, Var
    from tvm_ffi import structural_map

    graph = module["main"]
    called = _name_symbols(_places(_graph_dims(graph)), kept, path)
    if not called:
        return module
    known = symbols(graph)
    fresh = {known[old]: tirx.Var(new, "int64") for old, new in called.items()}
    graph = structural_map(graph, (Var, lambda var: fresh.get(var, var)))
    for bound in (tvm_compat.LOWER_BOUNDS, tvm_compat.UPPER_BOUNDS):
        known = dict(tvm_compat.attribute(graph, bound) or {})
        if known:
            graph = graph.with_attr(bound, {called.get(d, d): size for d, size in known.items()})
    result = IRModule(module.functions, attrs=module.attrs)
    result.update_func(result.get_global_var("main"), graph)
    return result


def with_named_symbols(declared: Declared, kept: Mapping[str, str], path: Path) -> Declared:
    """The same for what a model declares in the symbols of an archive.

    Args:
        kept, path: see `with_named_dims`.

    Raises:
        TunerError: the names do not fit its dimensions.
    """
    dims = [
        (f"{one.name}_{axis}", [*bases_of(dim)], bases_of(dim) == (dim,))
        for one in declared.inputs
        for axis, dim in enumerate(one.dims or ())
        if isinstance(dim, str)
    ]
    called = _name_symbols(_places(dims), kept, path)

    def new(dim: int | str) -> int | str:
        return dim if isinstance(dim, int) else rename(dim, called)

    inputs = (replace(i, dims=i.dims and tuple(map(new, i.dims))) for i in declared.inputs)
    bounds = {called[dim]: bound for dim, bound in declared.bounds.items() if dim in called}
    names = tuple(called[dim] for dim in declared.symbols)
    return replace(declared, inputs=tuple(inputs), symbols=names, bounds=bounds)


def _graph_dims(graph: Any) -> list[_Dim]:
    """The symbolic dimensions of a graph's parameters."""
    shapes = [(str(p.name), tvm_compat.param_dims(p) or ()) for p in graph.params]
    return [
        (f"{name}_{axis}", [str(v.name) for v in variables(dim)], variables(dim) == [dim])
        for name, dims in shapes
        for axis, dim in enumerate(dims)
        if is_symbolic(dim)
    ]


def _places(dims: Sequence[_Dim]) -> dict[str, str]:
    """The symbol at each place of the inputs, in order; the place is a name for it."""
    places = {place: inside[0] for place, inside, alone in dims if alone}
    for place, inside, _ in dims:
        for symbol in inside:
            if symbol not in places.values():
                base, number = f"{place}_base", 1
                while base in places:
                    number += 1
                    base = f"{place}_base{number}"
                places[base] = symbol
    return places


def _name_symbols(places: Mapping[str, str], kept: Mapping[str, str], path: Path) -> dict[str, str]:
    """A name for each symbol: one that was kept, or its first place."""
    chosen: dict[str, str] = {}
    for place, name in kept.items():
        if place not in places:
            there = ", ".join(places) or "none"
            raise TunerError(
                f"{path}: {NAMES_FILE}: {place} is no symbolic dimension of an input; "
                f"there are {there}"
            )
        if chosen.setdefault(places[place], name) != name:
            raise TunerError(
                f"{path}: {NAMES_FILE}: {chosen[places[place]]} and {name} are one dimension"
            )
    for place, symbol in places.items():
        chosen.setdefault(symbol, place)
    for name in chosen.values():
        if list(chosen.values()).count(name) > 1:
            raise TunerError(f"{path}: {NAMES_FILE}: two dimensions are called {name}")
    return chosen
