"""Operators that do something else while a network is trained: that is refused."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.frontends.onnx.node import Convert, Node
from spaces.frontends.onnx.sizes import shape_expression
from spaces.ir import tvm_compat

_SAYS_MODE = 7
"""The version of ONNX below which the mode is an attribute, `is_test`."""
_MASK_IS_BOOL, _RATIO_IS_OPERAND, _NORM_SAYS_MODE = 10, 12, 14


def _batch_norm(node: Node, builder: Any) -> Any:
    said = node.attributes
    if said.get("training_mode", 0):
        raise node.refused("its training_mode is 1, and models are imported to be run")
    if node.opset < _SAYS_MODE and not said.get("is_test", 0):
        raise node.refused("its is_test is 0, and models are imported to be run")
    if node.opset < _NORM_SAYS_MODE and any(node.outputs[1:]):
        raise node.refused("it gives statistics, as in training, and models are imported to be run")
    return None if said.get("spatial", 1) else _of_each_place(node, builder)


def _of_each_place(node: Node, builder: Any) -> Any:
    """With statistics of each element of a sample."""
    from tvm import relax

    emit = builder.emit
    data, scale, shift, mean, variance = (node.tensor(n, builder) for n in range(5))
    small = relax.const(float(node.attributes.get("epsilon", 1e-5)), node.operand(4).dtype)
    inverse = emit(relax.op.rsqrt(emit(relax.op.add(variance, small))))
    normal = emit(relax.op.multiply(emit(relax.op.subtract(data, mean)), inverse))
    return emit(relax.op.add(emit(relax.op.multiply(normal, scale)), shift))


def _dropout(node: Node, builder: Any) -> Any:
    """The operand as it is, and a mask."""
    from tvm import relax

    if _draws(node):
        raise node.refused("it draws at random, as in training, and models are imported to be run")
    tensor = node.tensor(0, builder)
    if not any(node.outputs[1:]):
        return tensor
    dims = node.dims(0)
    if dims is None:
        raise node.refused(f"the shape of its operand of {node.rank()} axes is not known")
    # Older versions do not say what the mask is; these are onnxruntime's.
    dtype = "bool" if node.opset >= _MASK_IS_BOOL else node.operand(0).dtype
    kept = relax.const(np.asarray(node.opset >= _RATIO_IS_OPERAND).astype(dtype), dtype)
    return [tensor, relax.op.broadcast_to(kept, shape_expression(dims))]


def _draws(node: Node) -> bool:
    """Whether anything is dropped."""
    if node.opset < _SAYS_MODE:
        drops = float(node.attributes.get("ratio", 0.5)) != 0
        return drops and not node.attributes.get("is_test", 0)
    if node.opset < _RATIO_IS_OPERAND or node.input(2) is None:
        return False
    ratio = 0.5 if node.input(1) is None else _number(node, 1)
    mode = _number(node, 2)
    if mode == 0 or ratio == 0:
        return False
    if mode is None or ratio is None:
        raise node.refused("only a run knows whether it draws at random, as in training")
    return True


def _number(node: Node, number: int) -> float | None:
    """An operand of one number; None where only a run knows it."""
    if known := node.numbers(number):
        return float(known[0])
    expression = node.operand(number).expression
    return float(expression.value.numpy().item()) if tvm_compat.is_constant(expression) else None


TRAINING: Mapping[str, Convert] = MappingProxyType(
    {"BatchNormalization": _batch_norm, "Dropout": _dropout}
)
