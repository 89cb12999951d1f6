"""Rewrites of a graph that TVM has no pass for, made before operators become programs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from spaces.ir import tvm_compat
from spaces.lowering.relax_rewrite import (
    constant,
    rank,
    with_graphs,
    with_weighted_calls,
)


def move_biases_into_batch_norms(module: Any) -> Any:
    """Turn `batch_norm(convolution + bias)` into `batch_norm(convolution)` with a shifted mean.

    TVM folds a batch norm only into the convolution right before it. This handles two-dimensional
    convolutions in NCHW with constant weights.
    """
    from tvm.relax.dpl import is_const, is_op, is_tuple_get_item, wildcard

    vector, gamma, beta, mean, variance = (is_const() for _ in range(5))
    bias = is_op("relax.reshape")(vector, wildcard()) | vector
    product = is_op("relax.nn.conv2d")(wildcard(), is_const())
    norm = is_op("relax.nn.batch_norm")(
        is_op("relax.add")(product, bias), gamma, beta, mean, variance
    )

    def shifted(matched: Any, found: Any) -> Any:
        from tvm import relax

        call, centre = found[norm], found[mean].value.numpy()
        per_channel = tvm_compat.param_shape(found[bias]) == [1, len(centre), 1, 1]
        if not per_channel or call.attrs.axis != 1 or call.attrs.training:
            return matched
        moved = constant(centre - found[vector].value.numpy().reshape(centre.shape))
        arguments = [found[product], found[gamma], found[beta], moved]
        return relax.TupleGetItem(relax.Call(call.op, [*arguments, found[variance]], call.attrs), 0)

    return _rewritten(module, is_tuple_get_item(norm, 0), shifted)


def affine_batch_norms(module: Any) -> Any:
    """Turn batch norms that have no convolution before them into a product and a sum.

    TVM's own form subtracts the mean, divides by the deviation, multiplies and adds: a division for
    each element, and four vectors to read where two do.
    """
    from tvm.relax.dpl import is_const, is_op, is_tuple_get_item, wildcard

    data, constants = wildcard(), [is_const() for _ in range(4)]
    norm = is_op("relax.nn.batch_norm")(data, *constants)

    def affine(matched: Any, found: Any) -> Any:
        from tvm import relax

        call = found[norm]
        attrs, ndim = call.attrs, rank(found[data])
        if attrs.training or ndim is None:
            return matched
        gamma, beta, mean, variance = (found[c].value.numpy().astype("float64") for c in constants)
        scale = (gamma if attrs.scale else 1.0) / np.sqrt(variance + float(attrs.epsilon))
        shift = (beta if attrs.center else 0.0) - mean * scale
        dtype = str(found[constants[0]].ty.dtype)
        shape = [-1 if axis == int(attrs.axis) % ndim else 1 for axis in range(ndim)]
        factor, term = (constant(a.astype(dtype).reshape(shape)) for a in (scale, shift))
        return relax.op.add(relax.op.multiply(found[data], factor), term)

    return _rewritten(module, is_tuple_get_item(norm, 0), affine)


def multiply_powers(module: Any) -> Any:
    """Turn squares and cubes into products, which a CPU does in an instruction or two."""

    def multiplied(call: Any, x: Any, exponent: Any) -> Any:
        from tvm import relax

        numbers = exponent.value.numpy()
        if numbers.size != 1 or numbers.ndim > len(tvm_compat.tensor_dims(x) or ()):
            return call
        square = relax.op.multiply(x, x)
        products = {2.0: square, 3.0: relax.op.multiply(square, x)}
        return products.get(float(numbers.item()), call)

    return with_weighted_calls(module, "relax.power", multiplied)


def broadcast_infinities(module: Any) -> Any:
    """Turn tensors full of infinities, or of what is no number, into one that is broadcast: TVM
    cannot write a program of the former."""

    def broadcast(call: Any, shape: Any, value: Any) -> Any:
        from tvm import relax

        number = float(value.value.numpy())
        if math.isfinite(number):
            return call
        constant = relax.const(number, str(call.ty.dtype))
        return relax.op.broadcast_to(constant, shape)

    return with_weighted_calls(module, "relax.full", broadcast)


def _rewritten(module: Any, pattern: Any, rewrite: Any) -> Any:
    """The module with every match of a pattern in its graphs rewritten."""
    from tvm.relax.dpl import rewrite_call

    return with_graphs(module, lambda graph: rewrite_call(pattern, rewrite, graph))
