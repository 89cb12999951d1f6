"""What TVM's converters honour of operators that move elements, or say where they are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.honoured.rows import (
    ANY,
    BOOL,
    FLOAT8,
    FLOATS,
    INDEX,
    INT64,
    INTEGERS,
    MOVED,
    NONE,
    NUMBERS,
    PLAIN,
    REALS,
    WIDE,
    Row,
    refuse_all,
    row,
)
from spaces.frontends.onnx.node import Node

_CAST = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16)
"""ONNX's numbers of the plain types of elements."""
_SEQUENCE = "sequences are not supported"


def _axis_said(node: Node) -> str | None:
    """Below version 4 the default is another axis than TVM's."""
    said = node.opset >= 4 or "axis" in node.attributes
    return None if said else "its attribute axis is not given"


def _even(node: Node) -> str | None:
    """TVM cuts into equal parts, the last of which may be shorter, but not below 0."""
    if node.input(1) is not None:
        return None if node.opset >= 13 else "its input split is not taken in its opset"
    dims, axis, parts = node.dims(0), int(node.attributes.get("axis", 0)), len(node.outputs)
    size = dims[axis] if dims and "split" not in node.attributes else 0
    if isinstance(size, int) and -(-size // parts) * (parts - 1) > size:
        return f"{parts} parts of {size} are not taken"
    return None


def _topk(node: Node) -> str | None:
    """TVM looks for the attribute, which version 10 made an operand."""
    return "it is not taken in opset 10" if node.opset == 10 else None


def _inverse(node: Node) -> str | None:
    dims = node.dims(0)
    flat = dims is not None and len(dims) == 1
    if flat or "axis" in node.attributes or not any(node.outputs[2:3]):
        return None
    return "its output inverse_indices is not computed of more than one axis"


def _empty(node: Node) -> str | None:
    return None if node.input(0) is not None else "optional values are not supported"


def _moved(since: int, *others: frozenset[str], **attributes: Any) -> Row:
    return row(since, MOVED, *others, **attributes)


TENSORS: Mapping[str, Row] = MappingProxyType(
    {
        "Cast": row(6, PLAIN | FLOAT8, to=_CAST, saturate=ANY, round_mode=ANY),
        "CastLike": row(15, PLAIN, PLAIN, saturate=ANY, round_mode=ANY),
        "Compress": row(9, PLAIN, BOOL, axis=ANY),
        "Concat": row(1, PLAIN, limit=_axis_said, axis=ANY),
        "Constant": row(
            1, value=ANY, value_float=ANY, value_floats=ANY, value_int=ANY, value_ints=ANY,
            sparse_value=(), value_string=(), value_strings=(),
        ),
        "ConstantOfShape": row(9, INT64, value=ANY),
        "CumSum": row(11, FLOATS | WIDE, INDEX, known=(1,), exclusive=ANY, reverse=ANY),
        "DepthToSpace": row(1, PLAIN, blocksize=ANY, mode=("CRD",)),
        "Expand": row(8, PLAIN, INT64),
        "EyeLike": row(9, PLAIN, dtype=ANY, k=ANY),
        "Flatten": _moved(1, axis=ANY),
        "Gather": row(1, PLAIN, INDEX, axis=ANY),
        "GatherElements": row(11, PLAIN, INDEX, axis=ANY),
        "GatherND": row(11, PLAIN, INT64, batch_dims=ANY),
        "Identity": _moved(1),
        "NonZero": row(9, PLAIN),
        "OneHot": row(
            9, INTEGERS, INTEGERS, frozenset({"int64", "float64"}), known=(1, 2), axis=ANY
        ),
        "Pad": row(
            2, PLAIN, INT64, PLAIN, INDEX, known=(1, 2, 3),
            mode=("edge", "reflect", "wrap"), pads=ANY, value=ANY,
        ),
        "Range": row(
            11, *[FLOATS | INDEX | {"int16"}] * 3, stash_type=(),
        ),
        "Reshape": _moved(5, INT64, allowzero=ANY),
        "Scatter": row(9, PLAIN, INDEX, PLAIN, axis=ANY),
        "ScatterElements": row(11, PLAIN, INDEX, PLAIN, axis=ANY, reduction=ANY),
        "ScatterND": row(11, PLAIN, INT64, PLAIN, reduction=ANY),
        "Shape": _moved(1, start=ANY, end=ANY),
        "Size": _moved(1),
        "Slice": row(10, PLAIN, INDEX, INDEX, INDEX, INDEX),
        "SpaceToDepth": row(1, PLAIN, blocksize=ANY, mode=()),
        "Split": row(
            1, PLAIN, INT64, known=(1,), limit=_even, axis=ANY, num_outputs=ANY, split=ANY
        ),
        "Squeeze": _moved(1, INT64, axes=ANY),
        "Tile": row(6, PLAIN, INT64),
        "TopK": row(
            1, REALS | {"int8", "int32", "int64", "uint8"}, INT64,
            gives=(2, 2), known=(1,), limit=_topk, axis=ANY, k=ANY, largest=ANY, sorted=(),
        ),
        "Transpose": _moved(1, perm=ANY),
        "Trilu": row(14, PLAIN, INT64, upper=ANY),
        "Unique": row(11, PLAIN, gives=(4, 4), limit=_inverse, axis=ANY, sorted=ANY),
        "Unsqueeze": _moved(1, INT64, axes=ANY),
        "Optional": row(15, PLAIN, limit=_empty, type=()),
        "OptionalGetElement": row(15, PLAIN),
        "OptionalHasElement": row(15, PLAIN),
        "ConcatFromSequence": refuse_all(_SEQUENCE, NONE, since=11, axis=(), new_axis=()),
        "SequenceAt": refuse_all(_SEQUENCE, NONE, NONE, since=11),
        "SequenceConstruct": refuse_all(_SEQUENCE, NONE, since=11),
        "SequenceEmpty": refuse_all(_SEQUENCE, since=11, dtype=()),
        "SequenceErase": refuse_all(_SEQUENCE, NONE, NONE, since=11),
        "SequenceInsert": refuse_all(_SEQUENCE, NONE, NONE, NONE, since=11),
        "SequenceLength": refuse_all(_SEQUENCE, NONE, since=11),
        "SplitToSequence": refuse_all(_SEQUENCE, NONE, NONE, since=11, axis=(), keepdims=()),
        "Einsum": row(12, NUMBERS, equation=ANY),
    }
)  # fmt: skip
