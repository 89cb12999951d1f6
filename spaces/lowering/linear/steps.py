"""Programs of `relax.quantize` and `relax.dequantize`.

A number of steps is cut off at what the integers hold, less the zero point, before it is rounded.
That gives the same, as limits are whole, and what is rounded is known to be an integer of 32 bits:
CPUs have one instruction that rounds and converts. What is no number becomes the least integer, as
in onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spaces.ir import tvm_compat

Make = Callable[[Any, Any, Any], Any]
"""An element of the result from one of the operand, its scale and its zero point. A scale of None
is 1, a zero point of None 0."""
_KINDS = ("int8", "uint8", "int16", "uint16")
_REAL, _WIDE = "float32", "int32"


def legalizations() -> dict[str, Callable[[Any, Any], Any]]:
    """Ours in place of TVM's, by operator, as `LegalizeOps` takes them."""
    return {"relax.dequantize": _dequantize, "relax.quantize": _quantize}


def round_steps(steps: Any, zero: Any, dtype: str) -> Any:
    """A number of steps as an integer, rounded to even, and cut off at what integers hold.

    Args:
        zero: what stands for zero, an integer; None is 0.
    """
    whole = cut_and_round(steps, zero, dtype).astype(_WIDE)
    return (whole if zero is None else whole + zero.astype(_WIDE)).astype(dtype)


def cut_and_round(steps: Any, zero: Any, dtype: str) -> Any:
    """What `round_steps` gives less its zero point, as a float."""
    from tvm import tirx

    limits = np.iinfo(dtype)
    low, high = (tirx.const(float(limit), _REAL) for limit in (limits.min, limits.max))
    if zero is not None:
        low, high = (limit - zero.astype(_REAL) for limit in (low, high))
    return tirx.nearbyint(tirx.min(tirx.max(steps, low), high))


def read_steps(integer: Any, scale: Any, zero: Any) -> Any:
    """The number that an integer stands for; a scale of None is 1, a zero point of None 0."""
    whole = integer.astype(_WIDE)
    real = (whole if zero is None else whole - zero.astype(_WIDE)).astype(_REAL)
    return real if scale is None else real * scale


def is_all(expression: Any, number: float) -> bool:
    """Whether a graph's expression is a constant that has only that number."""
    if not tvm_compat.is_constant(expression):
        return False
    return bool(np.all(expression.value.numpy() == number))


def _quantize(builder: Any, call: Any) -> Any:
    dtype = str(call.attrs.out_dtype)
    if str(call.args[0].ty.dtype) != _REAL or dtype not in _KINDS:
        return _by_tvm(builder, call)

    def make(number: Any, scale: Any, zero: Any) -> Any:
        return round_steps(number if scale is None else number / scale, zero, dtype)

    return _of_each(builder, call, "quantized", make)


def _dequantize(builder: Any, call: Any) -> Any:
    if str(call.args[0].ty.dtype) not in _KINDS or str(call.attrs.out_dtype) != _REAL:
        return _by_tvm(builder, call)
    return _of_each(builder, call, "dequantized", read_steps)


def _by_tvm(builder: Any, call: Any) -> Any:
    return call.op.get_attr("FLegalize")(builder, call)


def _of_each(builder: Any, call: Any, name: str, make: Make) -> Any:
    from tvm import te
    from tvm.relax.transform.legalize_ops.common import _try_convert_to_scalar_const as scalar

    x, scale, zero = call.args
    axis = int(call.attrs.axis)
    parts = [None if is_all(scale, 1) else scalar(scale), None if is_all(zero, 0) else scalar(zero)]

    def compute(x: Any, *given: Any) -> Any:
        rest = iter(given)
        tables = [None if part is None else next(rest) for part in parts]
        return te.compute(
            x.shape, lambda *at: make(x[at], *(_read(t, at, axis) for t in tables)), name=name
        )

    given = [part for part in parts if part is not None]
    return builder.call_te(compute, x, *given, primfunc_name_hint=name)


def _read(table: Any, place: Sequence[Any], axis: int) -> Any:
    """Of a table of one number or of one for each place of an axis; of a number, that."""
    if table is None or not hasattr(table, "shape"):
        return table
    if all(tvm_compat.as_int(size) == 1 for size in table.shape):
        return table[(0,) * len(table.shape)]
    return table[place[axis]]
