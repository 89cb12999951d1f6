"""What TVM's converters honour of operators on single elements."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spaces.frontends.onnx.honoured.rows import (
    ANY,
    BOOL,
    FLOATS,
    INTEGERS,
    NUMBERS,
    PLAIN,
    REALS,
    SIGNED,
    SINGLE,
    Row,
    row,
)
from spaces.frontends.onnx.node import Node


def _check_alignment(node: Node) -> str | None:
    """Below version 7 an attribute says at which axis the second operand begins."""
    dims, others = node.dims(0), node.dims(1)
    axis = node.attributes.get("axis")
    if (
        axis is None
        or dims is None
        or others is None
        or axis % len(dims) + len(others) == len(dims)
    ):
        return None
    return "its attribute axis is not taken where the axes that follow are not the last ones"


def _whole_shrink(node: Node) -> str | None:
    return fraction_of_integers(node, "bias", "lambd")


def fraction_of_integers(node: Node, *names: str) -> str | None:
    """Whether attributes have fractions, which would be cut off, where the elements are
    integers."""
    data = node.input(0)
    if data is not None and data.dtype in INTEGERS:
        for name in names:
            if float(node.attributes.get(name, 1.0)) % 1:
                return f"its attribute {name} is not taken with a fraction for integers"
    return None


def _channels(node: Node) -> str | None:
    """Below version 7 a vector of slopes has one for each channel."""
    dims, slopes = node.dims(0), node.dims(1)
    if node.opset >= 7 or dims is None or slopes is None or len(dims) == len(slopes) + 1:
        return None
    return None if all(s == 1 for s in slopes) else "slopes of channels are not taken in its opset"


def _one(since: int, types: frozenset[str] = FLOATS) -> Row:
    """Of one operand; a first version says which operands may be overwritten."""
    return row(since, types, consumed_inputs=ANY)


def _two(types: frozenset[str], since: int = 1) -> Row:
    """Of two operands; below version 7 attributes say how these are aligned."""
    return row(
        since, types, types, limit=_check_alignment, axis=ANY, broadcast=ANY, consumed_inputs=ANY
    )


ELEMENTWISE: Mapping[str, Row] = MappingProxyType(
    {
        **dict.fromkeys(("Acos", "Asin", "Atan", "Cos", "Sin", "Tan"), row(7, FLOATS)),
        **dict.fromkeys(("Acosh", "Asinh", "Atanh", "Cosh", "Sinh"), row(9, FLOATS)),
        **dict.fromkeys(("Ceil", "Exp", "Floor", "Log", "Reciprocal"), _one(1)),
        **dict.fromkeys(("Sigmoid", "Sqrt", "Tanh"), _one(1)),
        **dict.fromkeys(("Softplus", "Softsign"), row(1, FLOATS)),
        **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Greater", "Less"), _two(NUMBERS)),
        **dict.fromkeys(("GreaterOrEqual", "LessOrEqual"), row(12, NUMBERS, NUMBERS)),
        **dict.fromkeys(("And", "Or", "Xor"), _two(BOOL)),
        **dict.fromkeys(("Max", "Min"), row(1, NUMBERS, consumed_inputs=ANY)),
        **dict.fromkeys(("Mean", "Sum"), row(1, FLOATS, consumed_inputs=ANY)),
        **dict.fromkeys(
            ("BitwiseAnd", "BitwiseOr", "BitwiseXor"), row(18, INTEGERS, INTEGERS)
        ),
        "Abs": _one(1, NUMBERS),
        "BitShift": row(11, INTEGERS, INTEGERS, direction=ANY),
        "BitwiseNot": row(18, INTEGERS),
        "Clip": row(
            1, REALS | INTEGERS, REALS | INTEGERS, REALS | INTEGERS,
            consumed_inputs=ANY, min=ANY, max=ANY,
        ),
        "Elu": row(1, SINGLE, alpha=ANY, consumed_inputs=ANY),
        "Equal": _two(PLAIN),
        "Erf": row(9, FLOATS),
        "Gelu": row(20, FLOATS, approximate=ANY),
        "HardSigmoid": row(1, FLOATS, alpha=ANY, beta=ANY, consumed_inputs=ANY),
        "HardSwish": row(14, FLOATS),
        "IsInf": row(10, REALS, detect_negative=(), detect_positive=()),
        "IsNaN": row(9, REALS),
        "LeakyRelu": row(1, FLOATS, alpha=ANY, consumed_inputs=ANY),
        "Mish": row(18, FLOATS),
        "Mod": row(10, NUMBERS, NUMBERS, fmod=ANY),
        "Neg": _one(1, FLOATS | SIGNED),
        "Not": row(1, BOOL),
        "PRelu": row(1, REALS, REALS, limit=_channels, consumed_inputs=ANY),
        "Pow": row(1, REALS, REALS, limit=_check_alignment, axis=ANY, broadcast=ANY),
        "Relu": _one(1, FLOATS | SIGNED),
        "Round": row(11, FLOATS),
        "Selu": row(1, SINGLE, alpha=ANY, gamma=ANY, consumed_inputs=ANY),
        "Shrink": row(9, FLOATS | SIGNED, limit=_whole_shrink, bias=ANY, lambd=ANY),
        "Sign": row(9, FLOATS | SIGNED),
        "ThresholdedRelu": row(1, SINGLE, alpha=ANY),
        "Where": row(9, BOOL, PLAIN, PLAIN),
    }
)  # fmt: skip
