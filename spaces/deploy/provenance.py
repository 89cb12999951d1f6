"""Where a function's schedule came from: an attribute that passes leave, and the report of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from spaces.ir import tvm_compat
from spaces.lowering.extract_tasks import is_scheduled


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the schedule of a function came from.

    Attributes:
        how: `tuned` (a schedule of this very program), `anchor` (one of a program that differs in
            what is fused to its largest block), `library` (it calls a function of one), `pinned`
            (written by hand), `default` (by rule), `scheduled` (by another's pass), or `none`.
        source: the run, database, library, rule or kernel; empty where there is none.
        why: in words, what spoke for it; where there is none, why nothing was found.
        latency_s: as it was measured; None where it was not.
    """

    how: str
    source: str = ""
    why: str = ""
    latency_s: float | None = None


UNSCHEDULED = Origin("none", why="no pass had a schedule")


def put(module: Any, functions: Mapping[str, tuple[Any, Origin]]) -> Any:
    """A module with some functions replaced, marked as scheduled, their origin noted.

    The given module stays as it was. Functions keep their attributes.
    """
    from tvm.ir import IRModule

    result = IRModule(module.functions, attrs=module.attrs)
    for name, (function, origin) in functions.items():
        made = tvm_compat.with_attrs_of(function, module[name])
        made = made.with_attr(tvm_compat.IS_SCHEDULED, True)
        told = json.dumps({k: v for k, v in asdict(origin).items() if v not in ("", None)})
        result.update_func(result.get_global_var(name), made.with_attr(tvm_compat.ORIGIN, told))
    return result


def open_functions(module: Any) -> list[tuple[str, Any]]:
    """The tensor programs of a module that no pass has scheduled, by name."""
    return [(n, f) for n, f in tvm_compat.prim_funcs(module) if not is_scheduled(f)]


def origins(module: Any) -> dict[str, Origin]:
    """The origin of each tensor program's schedule, by the function's name."""
    return {name: _origin(function) for name, function in tvm_compat.prim_funcs(module)}


def _origin(function: Any) -> Origin:
    told = tvm_compat.attribute(function, tvm_compat.ORIGIN)
    if told is not None:
        return Origin(**json.loads(str(told)))
    return Origin("scheduled") if is_scheduled(function) else UNSCHEDULED
