"""How far an imported model may be from its source.

Both round, in different orders, and a deep network lets that grow. So the bounds are of two kinds:
for a whole model they are wide, relative to the largest element of an output; for one node that is
given the same operands they are narrow, see `spaces.import_check.locate`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.check.compare import difference
from spaces.frontends.onnx.contributed.packed import IN_BYTES
from spaces.ir.element_types import eps_of, limits_of

Array = npt.NDArray[Any]
_WHOLE = 4096.0
_NODE = 256.0
"""Bounds in steps of the type, of an element and of the largest element both."""
_MOST = 0.05
"""The largest relative bound: of types of few bits a whole model is allowed no more than that."""
_OF_BYTES = 2.0**-8
"""The relative step of a number that was rounded to 8 bits by the largest one of its block, or of
its tensor."""
TO_BYTES = ("Quantize", "DynamicQuantize", "QLinear", "QGemm", "QAttention")
"""How operators begin that round to bytes. Where two sides round a number that is next to a tie,
one has a step more, which the layers behind it see."""
_INSIDE = ("DynamicQuantizeMatMul", "DynamicQuantizeLSTM")
"""Those of them whose bytes nobody sees."""


def coarsest_step(proto: Any, *, with_bytes: bool = True) -> float:
    """The relative step of the coarsest rounding within a graph: of the shortest float of 16 bits
    that it computes in, or of what it rounds to 8 bits or allows to have no more; 0 without any.

    What is fused is worked out in longer floats, and not rounded to these in between; whether rows
    are rounded is for each CPU to decide.

    Args:
        with_bytes: whether what it rounds to bytes for all to see is among them.
    """
    import onnx

    levels = (a.i for n in proto.graph.node for a in n.attribute if a.name == "accuracy_level")
    in_bytes = any(level == IN_BYTES for level in levels) or _rounds(proto, _INSIDE)
    in_bytes = in_bytes or (with_bytes and rounds_to_bytes(proto))
    kinds = types_in(proto)
    names = {onnx.TensorProto.FLOAT16: "float16", onnx.TensorProto.BFLOAT16: "bfloat16"}
    steps = [eps_of(name) for kind, name in names.items() if kind in kinds]
    return max([*steps, _OF_BYTES * in_bytes])


def rounds_to_bytes(proto: Any) -> bool:
    """Whether a graph rounds to bytes of its own accord."""
    return _rounds(proto, TO_BYTES)


def _rounds(proto: Any, operators: tuple[str, ...]) -> bool:
    return any(node.op_type.startswith(operators) for node in proto.graph.node)


def types_in(proto: Any) -> set[int]:
    """The types of elements that a graph mentions, as ONNX numbers them."""
    graph = proto.graph
    values = (*graph.input, *graph.output, *graph.value_info)
    kinds = {value.type.tensor_type.elem_type for value in values}
    kinds |= {tensor.data_type for tensor in graph.initializer}
    return kinds | {a.i for node in graph.node for a in node.attribute if a.name in ("to", "dtype")}


def part(got: Array, want: Array, *, narrow: bool = False, step: float = 0.0) -> str:
    """How an output differs from what the source gives, in one line; empty if it does not.

    Args:
        narrow: whether only one node lies between the inputs and this.
        step: see `coarsest_step`; the output's own if that is larger.
    """
    if got.shape != want.shape:
        return f"its shape is {_show(got)}, and {_show(want)} in the source"
    if got.dtype != want.dtype:
        return f"it holds {got.dtype}, and {want.dtype} in the source"
    if not got.size:
        return ""
    if got.dtype.kind in "iub":
        rounded = narrow and got.dtype.itemsize == 1 and got.dtype.kind != "b"
        return difference(got, want, np.ones(got.shape) if rounded else None) or ""
    wide = np.float64 if got.dtype == np.float64 else np.float32
    exact = want.astype(wide)
    finite = np.abs(exact[np.isfinite(exact)])
    scale = float(finite.max(initial=0.0))
    steps = _NODE if narrow else _WHOLE
    share = min(max(eps_of(str(got.dtype)), step) * steps, _MOST)
    with np.errstate(all="ignore"):
        bound = share * (np.abs(exact) + scale) + float(limits_of(str(got.dtype)).tiny)
    return difference(got, want, bound) or ""


def _show(array: Array) -> str:
    return ",".join(map(str, array.shape)) or "a scalar"
