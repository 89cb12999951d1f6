"""Constants computed with NumPy.

TVM folds a constant by compiling a program for it, some 30 ms each, and a network with batch norms
has hundreds: of DenseNet-121 they took 10 s. What is not in the table is left to TVM, which has no
program for some of what is: running sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.ir import tvm_compat
from spaces.ir.element_types import NUMPY_FLOATS
from spaces.lowering.relax_rewrite import (
    constant,
    replace_vars,
    straight_bindings,
    with_graphs,
    write_anew,
)

Array = npt.NDArray[Any]
Compute = Callable[[Any, Sequence[Array]], Array]
"""The value of a call, from the values of its tensors."""


def fold(module: Any) -> Any:
    """A module with the constants of its straight graphs computed, as far as the table goes."""
    return with_graphs(module, _fold)


def _fold(function: Any) -> Any:
    from tvm import relax

    bindings = straight_bindings(function)
    if bindings is None:
        return function
    known: dict[Any, Any] = {}
    rest = []
    for binding in bindings:
        array = _value_of(replace_vars(binding.value, known), binding.var)
        if array is None:
            rest.append(binding)
        else:
            known[binding.var] = constant(array)
    if not known:
        return function
    builder = relax.BlockBuilder()

    def emit() -> Any:
        for binding in rest:
            name = tvm_compat.variable_name(binding.var)
            known[binding.var] = builder.emit(replace_vars(binding.value, known), name)
        return replace_vars(function.body.body, known)

    return write_anew(builder, function, emit)


def _value_of(value: Any, var: Any) -> Array | None:
    """The value of a call of constants; None where it is not known here."""
    from tvm import relax

    compute = _TABLE.get(tvm_compat.operator_name(value))
    dims = tvm_compat.tensor_dims(var)
    if compute is None or dims is None:
        return None
    tensors = [a for a in value.args if not isinstance(a, relax.ShapeExpr)]
    sizes = [size for d in dims if (size := tvm_compat.as_int(d)) is not None]
    if len(sizes) < len(dims) or not tensors or not all(map(tvm_compat.is_constant, tensors)):
        return None
    dtype, name = str(var.ty.dtype), tvm_compat.operator_name(value)
    if dtype not in NUMPY_FLOATS and not (name == "relax.cumsum" and dtype in ("int32", "int64")):
        return None
    found = compute(value.attrs, [t.value.numpy() for t in tensors])
    return np.ascontiguousarray(found, dtype=dtype).reshape(sizes)


def _elementwise(function: Callable[..., Array]) -> Compute:
    return lambda attrs, tensors: function(*tensors)


def _expand_dims(attrs: Any, tensors: Sequence[Array]) -> Array:
    return np.expand_dims(tensors[0], tuple(int(axis) for axis in attrs.axis))


def _permute_dims(attrs: Any, tensors: Sequence[Array]) -> Array:
    axes = None if attrs.axes is None else [int(axis) for axis in attrs.axes]
    return tensors[0].transpose(axes)


def _cumsum(attrs: Any, tensors: Sequence[Array]) -> Array:
    (numbers,) = tensors
    axis = None if attrs.axis is None else int(attrs.axis)
    sums = numbers.cumsum(axis, dtype=str(attrs.dtype or numbers.dtype))
    return sums - numbers.reshape(sums.shape) if attrs.exclusive else sums


def _same(attrs: Any, tensors: Sequence[Array]) -> Array:
    """Of what only changes the shape or the type, both of which the result's variable has."""
    return tensors[0]


_TABLE: Mapping[str, Compute] = MappingProxyType(
    {
        "relax.add": _elementwise(np.add),
        "relax.subtract": _elementwise(np.subtract),
        "relax.multiply": _elementwise(np.multiply),
        "relax.divide": _elementwise(np.divide),
        "relax.sqrt": _elementwise(np.sqrt),
        "relax.rsqrt": _elementwise(lambda x: 1 / np.sqrt(x)),
        "relax.negative": _elementwise(np.negative),
        "relax.cumsum": _cumsum,
        "relax.expand_dims": _expand_dims,
        "relax.permute_dims": _permute_dims,
        "relax.reshape": _same,
        "relax.squeeze": _same,
    }
)
