"""Dimensions that are computed from another one, and the names that say how.

`T_x16` is `16 * T`, and `T_x16_p3` is `16 * T + 3`. Each step applies to the value before it: `x`
multiplies, `p` adds, `m` subtracts, `d` divides and rounds down. The rows of a convolution with a
stride of two, `(H - 1) // 2 + 1`, are `H_x1_m1_d2_p1`. Programs, records and people keep only the
name of a dimension, so its values follow from the name alone.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.symbolic import value_of, variables


def name_of(dim: Any) -> str:
    """The name of an expression of one variable; empty where no such name describes it."""
    import tvm

    return _name_of(tvm.sym.Analyzer().simplify(dim))  # constants come last then


def _name_of(dim: Any) -> str:
    found = affine(dim)
    if found is not None:
        var, times, plus = found
        return f"{var.name}_x{times}{_moved(plus)}"
    from tvm import tirx

    number = tvm_compat.as_int(getattr(dim, "b", None))
    inner = "" if number is None else _name_of(dim.a)
    if number is None or not inner:
        return ""
    if isinstance(dim, tirx.Add | tirx.Sub):
        return inner + _moved(number if isinstance(dim, tirx.Add) else -number)
    kinds = {tirx.FloorDiv: "d", tirx.Mul: "x"} if number > 0 else {}
    return next((f"{inner}_{kinds[k]}{number}" for k in kinds if isinstance(dim, k)), "")


def _moved(by: int) -> str:
    return f"_p{by}" if by > 0 else f"_m{-by}" if by else ""


def affine(dim: Any) -> tuple[Any, int, int] | None:
    """The T, the 16 and the 3 of `16 * T + 3`; None for another form, or if it does not grow."""
    import tvm

    inside = variables(dim)
    if len(inside) != 1:
        return None
    (var,) = inside
    plus, one = (value_of(dim, {str(var.name): n}) for n in (0, 1))
    if plus is None or one is None or one <= plus:
        return None
    times = one - plus
    equal = tvm.sym.Analyzer().can_prove_equal(dim, var * times + plus)
    return (var, times, plus) if equal else None
