"""Operators that pick one of two numbers, as programs that hand on what is no number.

TVM's own programs use `max(x, 0)`, which LLVM's code reads as a comparison and a choice: it gives 0
for an x that is no number. `max(0, x)` gives x, in one instruction as well. Elsewhere, as on a GPU,
`max` gives the operand that is a number, in any order, and has to be told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from spaces.ir import tvm_compat
from spaces.ir.element_types import is_float, is_small_float

_Pick: TypeAlias = Callable[[Any, Any], Any]
"""Gives the one of two numbers that is wanted."""


def legalizations() -> dict[str, Callable[[Any, Any], Any]]:
    """Ours in place of TVM's, by operator, as `LegalizeOps` takes them."""
    return {
        "relax.clip": _clip,
        "relax.logical_not": _not,
        "relax.maximum": _of_two("maximum", pick_larger),
        "relax.minimum": _of_two("minimum", pick_smaller),
        "relax.nn.relu": _relu,
    }


def pick_larger(a: Any, b: Any) -> Any:
    """The larger of two numbers; one that is none where either is."""
    from tvm import tirx

    return _pick_by(tirx.max, a, b)


def pick_smaller(a: Any, b: Any) -> Any:
    """The smaller of two numbers; one that is none where either is."""
    from tvm import tirx

    return _pick_by(tirx.min, a, b)


def _pick_by(operator: _Pick, a: Any, b: Any) -> Any:
    from tvm import tirx
    from tvm.target import Target

    target = Target.current(allow_none=True)
    if target is not None and str(target.kind.name) == "llvm":
        return _or_none(b, operator(b, a))
    return tirx.Select(_is_none(a), a, _or_none(b, operator(a, b)))


def _or_none(number: Any, picked: Any) -> Any:
    """What was picked, or a number that is none; of a constant it is known whether it is."""
    from tvm import tirx

    if isinstance(number, tirx.FloatImm) and number.value == number.value:
        return picked
    return tirx.Select(_is_none(number), number, picked)


def _is_none(number: Any) -> Any:
    from tvm import tirx

    dtype = str(getattr(number, "dtype", None) or number.ty.dtype)
    return tirx.isnan(number.astype("float32") if is_small_float(dtype) else number)


def _relu(builder: Any, call: Any) -> Any:
    from tvm import tirx, topi

    dtype = str(call.ty.dtype)
    if not is_float(dtype):
        return builder.call_te(topi.nn.relu, call.args[0])
    zero = tirx.const(0, dtype)
    return _of_each(builder, call, "relu", lambda x: pick_larger(x, zero))


def _not(builder: Any, call: Any) -> Any:
    """TVM's simplifier makes `b <= a` of `not a < b`, which differ where one is no number."""
    from tvm import tirx, topi

    if str(call.ty.dtype) != "bool":
        return builder.call_te(topi.logical_not, call.args[0], primfunc_name_hint="tir_logical_not")
    yes = tirx.const(True, "bool")
    return _of_each(builder, call, "tir_logical_not", lambda x: tirx.bitwise_xor(x, yes))


def _clip(builder: Any, call: Any) -> Any:
    from tvm import tirx, topi

    dtype = str(call.ty.dtype)
    if not is_float(dtype):
        return builder.call_te(topi.clip, *call.args, primfunc_name_hint="tir_clip")
    least, most = (tirx.const(float(bound.value), dtype) for bound in call.args[1:])
    return _of_each(builder, call, "tir_clip", lambda x: pick_larger(pick_smaller(x, most), least))


def _of_each(builder: Any, call: Any, name: str, change: Callable[[Any], Any]) -> Any:
    from tvm import te

    def compute(x: Any) -> Any:
        return te.compute(x.shape, lambda *place: change(x[place]), name="compute")

    return builder.call_te(compute, call.args[0], primfunc_name_hint=name)


def _of_two(name: str, pick: _Pick) -> Callable[[Any, Any], Any]:
    def legalize(builder: Any, call: Any) -> Any:
        from tvm import topi
        from tvm.relax.transform.legalize_ops.common import _try_convert_to_scalar_const as scalar

        a, b = call.args[0], scalar(call.args[1])
        if isinstance(b, type(call.args[1])):
            a, b = b, scalar(a)
        if not is_float(str(call.ty.dtype)):
            return builder.call_te(getattr(topi, name), a, b)
        return builder.call_te(lambda x, y: _pick(x, y, pick), a, b, primfunc_name_hint=name)

    return legalize


def _pick(a: Any, b: Any, pick: _Pick) -> Any:
    from tvm import te

    shapes = [tuple(getattr(operand, "shape", ())) for operand in (a, b)]
    return te.compute(
        _broadcast(*shapes),
        lambda *place: pick(read_broadcast(a, place), read_broadcast(b, place)),
        name="compute",
    )


def read_broadcast(operand: Any, place: Sequence[Any]) -> Any:
    """What a tensor holds at a place of one that it is broadcast to; a number as it is."""
    if not hasattr(operand, "shape"):
        return operand
    inner = place[len(place) - len(operand.shape) :]
    pairs = zip(operand.shape, inner, strict=True)
    return operand[tuple(0 if tvm_compat.as_int(d) == 1 else i for d, i in pairs)]


def _broadcast(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    rank = max(len(one), len(other))
    padded = ([1] * (rank - len(shape)) + list(shape) for shape in (one, other))
    found = []
    for a, b in zip(*padded, strict=True):
        numbers = tvm_compat.as_int(a), tvm_compat.as_int(b)
        found.append(b if numbers[0] == 1 or (numbers[0] is None and (numbers[1] or 1) > 1) else a)
    return found
