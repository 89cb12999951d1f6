"""Models of ONNX whose products of bytes onnxruntime computes as they are defined.

On CPUs of x86 without VNNI it adds up pairs of products of uint8 by int8 in 16 bits, which cuts off
large ones (onnxruntime, "Quantize ONNX Models", "When and why do I need to try U8U8?"). Of weights
without signs it does not: each is counted from 128 below, and so is what stands for zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

_MIDDLE = 128


@dataclass(frozen=True, slots=True)
class _Places:
    """Of an operator's inputs: the weight, what stands for its zero, and for the rows' zero, where
    only rows without signs may be multiplied by such weights."""

    weight: int
    zero: int
    rows_zero: int | None = None


_PLACES: Mapping[str, _Places] = MappingProxyType(
    {
        "QLinearConv": _Places(3, 5, 2),
        "QLinearMatMul": _Places(3, 5, 2),
        "QGemm": _Places(3, 5, 2),
        "MatMulInteger": _Places(1, 3),
        "MatMulIntegerToFloat": _Places(1, 5),
        "DynamicQuantizeMatMul": _Places(1, 3),
    }
)
"""`ConvInteger` is exact as it is."""


def drop_signs(model: Any) -> Any:
    """A model of the same values whose constant weights in products of bytes have no signs; the
    model itself where it has no such products.

    Args:
        model: a file or a protobuf.
    """
    import onnx

    is_file = isinstance(model, Path)
    known = onnx.load(str(model), load_external_data=False) if is_file else model
    if not [*_list_signed(known)]:
        return model
    changed = onnx.load(str(model)) if is_file else onnx.ModelProto()
    if not is_file:
        changed.CopyFrom(known)
    for node, places in [*_list_signed(changed)]:
        _drop_signs_of(changed.graph, node, places)
    return changed


def _list_signed(proto: Any) -> Iterator[tuple[Any, _Places]]:
    """Nodes whose weights are constants with signs, and whose zeros are constants."""
    import onnx

    kinds = {tensor.name: tensor.data_type for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        places = _PLACES.get(node.op_type)
        if places is None or kinds.get(node.input[places.weight]) != onnx.TensorProto.INT8:
            continue
        zero = _name(node, places.zero)
        if zero and zero not in kinds:
            continue
        rows = places.rows_zero
        if rows is None or kinds.get(_name(node, rows)) == onnx.TensorProto.UINT8:
            yield node, places


def _name(node: Any, place: int) -> str:
    return str(node.input[place]) if place < len(node.input) else ""


def _drop_signs_of(graph: Any, node: Any, places: _Places) -> None:
    """Have a node read a weight and zeros that are larger by 128."""
    from onnx import numpy_helper

    arrays = {tensor.name: tensor for tensor in graph.initializer}
    node.input.extend([""] * (places.zero + 1 - len(node.input)))
    for place in (places.weight, places.zero):
        name = node.input[place]
        array = numpy_helper.to_array(arrays[name]) if name else np.zeros((), np.int8)
        new = f"{name or node.output[0]} counted from {-_MIDDLE}"
        if new not in arrays:
            larger = (array.astype(np.int16) + _MIDDLE).astype(np.uint8)
            arrays[new] = numpy_helper.from_array(larger, new)
            graph.initializer.append(arrays[new])
        node.input[place] = new
