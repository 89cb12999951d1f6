"""Rules for operators channels-last: the operators that can run so, and the calls that do it.

A rule takes a call and its arguments, activations already channels-last, and makes the new call.
Calls without a rule run channels-first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from spaces.ir import tvm_compat
from spaces.lowering.layouts.gains import Gains
from spaces.lowering.relax_rewrite import rank

TO_LAST = (0, 2, 3, 1)
"""Axes that turn NCHW into NHWC."""
TO_FIRST = (0, 3, 1, 2)
"""Axes that turn NHWC into NCHW."""
_FROM_OIHW = {"HWIO": (2, 3, 1, 0), "OHWI": (0, 2, 3, 1)}
"""Axes that turn OIHW into layouts of kernels."""

_BINARY = "add subtract multiply divide floor_divide mod power maximum minimum"
_COMPARE = "equal not_equal greater greater_equal less less_equal"
_UNARY = "abs ceil erf exp floor log negative round rsqrt sigmoid sign sqrt square tanh"
_NN = "gelu gelu_tanh leakyrelu relu relu6 selu silu softplus"
ELEMENTWISE = frozenset(
    [f"relax.{n}" for n in f"{_BINARY} {_COMPARE} {_UNARY} astype clip where".split()]
    + [f"relax.nn.{n}" for n in _NN.split()]
)
POOLS = frozenset(f"relax.nn.{n}" for n in ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"))
_REDUCTIONS = frozenset(f"relax.{n}" for n in ("max", "mean", "min", "prod", "sum"))
_SOFTMAXES = frozenset(("relax.nn.softmax", "relax.nn.log_softmax"))
CONVOLUTION = "relax.nn.conv2d"
_LINEAR = ("relax.quantize", "relax.dequantize")
_ONE_ACTIVATION = (CONVOLUTION, "relax.nn.prelu", *_LINEAR)

Rewrite = Callable[[Any, Sequence[Any]], Any]


def rewrite_of(call: Any, gains: Gains) -> Rewrite | None:
    """The rule that makes a call channels-last; None where the call must stay as it is."""
    name = tvm_compat.operator_name(call)
    if name in ELEMENTWISE:
        return _elementwise if rank(call) == 4 else None
    if name == CONVOLUTION:
        if not _is_plain_convolution(call):
            return None
        return partial(_convolution, gains.lay_out_kernel(call.args[1]))
    if name in POOLS:
        attrs = call.attrs
        return _pool if attrs.layout == attrs.out_layout == "NCHW" else None
    if name == "relax.concat":
        fields = operands(call)
        return _concat if fields and all(rank(field) == 4 for field in fields) else None
    if not call.args or rank(call.args[0]) != 4:
        return None
    if name in _LINEAR:
        return _linear if all(map(tvm_compat.is_constant, call.args[1:])) else None
    if name in _REDUCTIONS:
        return _reduction if _keeps_order(call.attrs) else None
    if name in _SOFTMAXES:
        return _softmax
    return {"relax.nn.pad": _pad, "relax.split": _split, "relax.nn.prelu": _prelu}.get(name)


def operands(call: Any) -> list[Any]:
    """Operands of a call that change layout with it, in order; fields of a tuple one by one."""
    from tvm import relax

    if tvm_compat.operator_name(call) in _ONE_ACTIVATION:
        return [call.args[0]]
    flat: list[Any] = []
    for argument in call.args:
        flat += argument.fields if isinstance(argument, relax.Tuple) else [argument]
    return flat


def permute_constant(constant: Any, axes: Sequence[int]) -> Any:
    """A constant with its axes in another order; missing axes are added before its own."""
    import numpy as np
    from tvm import relax

    array = constant.value.numpy()
    array = array.reshape((1,) * (len(axes) - array.ndim) + array.shape)
    return relax.const(np.ascontiguousarray(array.transpose(axes)), constant.ty.dtype)


def _is_plain_convolution(call: Any) -> bool:
    attrs = call.attrs
    plain = attrs.data_layout == attrs.out_layout == "NCHW" and attrs.kernel_layout == "OIHW"
    return plain and tvm_compat.is_constant(call.args[1])


def _convolution(kernel_layout: str, call: Any, arguments: Sequence[Any]) -> Any:
    from tvm.relax import op

    attrs = call.attrs
    return op.nn.conv2d(
        arguments[0],
        permute_constant(call.args[1], _FROM_OIHW[kernel_layout]),
        strides=_ints(attrs.strides),
        padding=_ints(attrs.padding),
        dilation=_ints(attrs.dilation),
        groups=int(attrs.groups),
        data_layout="NHWC",
        kernel_layout=kernel_layout,
        out_dtype=attrs.out_dtype,
    )


def _elementwise(call: Any, arguments: Sequence[Any]) -> Any:
    from tvm import relax

    return relax.Call(call.op, list(arguments), call.attrs, call.ty_args)


def _pool(call: Any, arguments: Sequence[Any]) -> Any:
    from tvm.relax import op

    attrs = call.attrs
    if tvm_compat.operator_name(call).endswith("adaptive_avg_pool2d"):
        size = None if attrs.output_size is None else _ints(attrs.output_size)
        return op.nn.adaptive_avg_pool2d(arguments[0], size, layout="NHWC")
    make = op.nn.max_pool2d if "max" in tvm_compat.operator_name(call) else op.nn.avg_pool2d
    return make(
        arguments[0],
        pool_size=_ints(attrs.pool_size),
        strides=_ints(attrs.strides),
        padding=_ints(attrs.padding),
        dilation=_ints(attrs.dilation),
        ceil_mode=bool(attrs.ceil_mode),
        count_include_pad=bool(attrs.count_include_pad),
        layout="NHWC",
    )


def _concat(call: Any, arguments: Sequence[Any]) -> Any:
    from tvm.relax import op

    return op.concat(list(arguments), axis=_move_axis(call.attrs.axis or 0))


def _split(call: Any, arguments: Sequence[Any]) -> Any:
    from tvm.relax import op

    attrs = call.attrs
    parts = attrs.indices_or_sections
    return op.split(
        arguments[0],
        _ints(parts) if hasattr(parts, "__len__") else int(parts),
        axis=_move_axis(attrs.axis),
    )


def _keeps_order(attrs: Any) -> bool:
    """Whether the result of a reduction has the same order of axes in both layouts."""
    if attrs.keepdims or attrs.axis is None:
        return True
    left = {0, 1, 2, 3} - {int(axis) % 4 for axis in attrs.axis}
    return 1 not in left or not left & {2, 3}


def _reduction(call: Any, arguments: Sequence[Any]) -> Any:
    from tvm import relax

    attrs = call.attrs
    make = getattr(relax.op, tvm_compat.operator_name(call).removeprefix("relax."))
    axes = None if attrs.axis is None else [_move_axis(axis) for axis in attrs.axis]
    return make(arguments[0], axis=axes, keepdims=bool(attrs.keepdims))


def _softmax(call: Any, arguments: Sequence[Any]) -> Any:
    from tvm import relax

    make = getattr(relax.op.nn, tvm_compat.operator_name(call).removeprefix("relax.nn."))
    return make(arguments[0], axis=_move_axis(call.attrs.axis))


def _pad(call: Any, arguments: Sequence[Any]) -> Any:
    from tvm.relax import op

    widths = _ints(call.attrs.pad_width)
    moved = [width for axis in TO_LAST for width in widths[2 * axis : 2 * axis + 2]]
    return op.nn.pad(arguments[0], moved, call.attrs.pad_mode, call.attrs.pad_value)


def _prelu(call: Any, arguments: Sequence[Any]) -> Any:
    from tvm.relax import op

    return op.nn.prelu(arguments[0], call.args[1], axis=_move_axis(call.attrs.axis))


def _linear(call: Any, arguments: Sequence[Any]) -> Any:
    from tvm import relax

    make = getattr(relax.op, tvm_compat.operator_name(call).removeprefix("relax."))
    axis, dtype = _move_axis(call.attrs.axis), call.attrs.out_dtype
    return make(arguments[0], *call.args[1:], axis=axis, out_dtype=dtype)


def _move_axis(axis: Any) -> int:
    """The position in NHWC of an axis of NCHW."""
    return TO_LAST.index(int(axis) % 4)


def _ints(values: Any) -> list[int]:
    return [int(value) for value in values]
