"""Dimensions that are computed from others, and the names that say how, see
`tuner.dynamic.derived_names`.

The rows of a convolution with a stride of two, `(H - 1) // 2 + 1`, are `H_x1_m1_d2_p1`, and the
places of a mask over past and new rows are `past_plus_new`.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.symbolic import value_of, variables
from tuner.dynamic.derived_names import PLUS, move


def name_of(dim: Any) -> str:
    """The name of an expression of variables; empty where no such name describes it."""
    import tvm

    return _name_of(tvm.sym.Analyzer().simplify(dim))  # constants come last then


def _name_of(dim: Any) -> str:
    found = _linear(dim)
    if found is not None:
        terms, plus = found
        *front, (var, times) = sorted(terms, key=lambda term: str(term[0].name))
        ones = [f"{v.name}_x{n}" if n > 1 else str(v.name) for v, n in front]
        bare = front and times == 1 and not plus
        return PLUS.join([*ones, str(var.name) if bare else f"{var.name}_x{times}{move(plus)}"])
    from tvm import tirx

    number = tvm_compat.as_int(getattr(dim, "b", None))
    inner = "" if number is None else _name_of(dim.a)
    if number is None or not inner:
        return ""
    if isinstance(dim, tirx.Add | tirx.Sub):
        return inner + move(number if isinstance(dim, tirx.Add) else -number)
    if PLUS in inner:  # the steps of a sum are those of its last term
        return ""
    kinds = {tirx.FloorDiv: "d", tirx.Mul: "x"} if number > 0 else {}
    return next((f"{inner}_{kinds[k]}{number}" for k in kinds if isinstance(dim, k)), "")


def affine(dim: Any) -> tuple[Any, int, int] | None:
    """The T, the 16 and the 3 of `16 * T + 3`; None for another form, or if it does not grow."""
    found = _linear(dim)
    if found is None or len(found[0]) > 1:
        return None
    (((var, times),), plus) = found
    return var, times, plus


def _linear(dim: Any) -> tuple[list[tuple[Any, int]], int] | None:
    """The variables of `past + 16 * T + 3`, each with what it is multiplied by, and the 3; None for
    another form, or if it does not grow with each of them."""
    import tvm

    inside = variables(dim)
    names = [str(var.name) for var in inside]
    plus = value_of(dim, dict.fromkeys(names, 0))
    if not inside or plus is None or len({*names}) < len(names):
        return None
    whole, terms = tvm.tirx.const(plus, str(dim.ty.dtype)), list[tuple[Any, int]]()
    for var, name in zip(inside, names, strict=True):
        one = value_of(dim, {**dict.fromkeys(names, 0), name: 1})
        if one is None or one <= plus:
            return None
        terms.append((var, one - plus))
        whole = whole + var * (one - plus)
    return (terms, plus) if tvm.sym.Analyzer().can_prove_equal(dim, whole) else None
