"""`NonMaxSuppression`: boxes of the highest scores, without those that overlap one of them.

It is one program, since TVM's operator leaves out scores below 0 and overlaps that are just as
large as the threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.frontends.onnx.node import Convert, Node


def _non_max_suppression(node: Node, builder: Any) -> Any:
    """Without a number of boxes there is none; without a threshold each score is high enough."""
    from tvm import relax, tirx

    boxes, scores, dims, others = node.input(0), node.input(1), node.dims(0), node.dims(1)
    if boxes is None or scores is None or dims is None or others is None:
        raise node.refused("the shape of its boxes or of their scores is not known")
    for size, other in ((dims[0], others[0]), (dims[1], others[2])):
        node.require_equal(size, other)
    if node.input(2) is None:
        return relax.const(np.zeros((0, 3), "int64"), "int64")
    given = boxes.tensor(builder), scores.tensor(builder)
    order = builder.emit(relax.op.argsort(given[1], axis=2, descending=True, dtype="int32"))
    operands = [
        *given,
        order,
        _scalar(node, builder, 2, "int64"),
        _scalar(node, builder, 3, "float32"),
        _scalar(node, builder, 4, "float32"),
    ]
    limited = node.input(4) is not None
    centers = bool(node.attributes.get("center_point_box", 0))

    def non_max_suppression(*tensors: Any) -> Any:
        return _program(tensors, limited, centers)

    both = builder.emit_te(non_max_suppression, *operands)
    kept = relax.op.nonzero(builder.emit(relax.TupleGetItem(both, 0)))
    number = tirx.Var("number_of_boxes", "int64")
    places = builder.match_cast(builder.emit(kept), relax.TensorType((3, number), "int64"))
    return builder.emit_te(rows_of_boxes, places, order)


def rows_of_boxes(places: Any, order: Any) -> Any:
    """Image, class and box of what is kept, by places in the order of scores."""
    from tvm import te, tirx

    def element(row: Any, column: Any) -> Any:
        image, kind, place = (places[n, row] for n in range(3))
        box = order[image, kind, place].astype("int64")
        return tirx.Select(column == 0, image, tirx.Select(column == 1, kind, box))

    return te.compute((places.shape[1], 3), element, name="rows")


def _scalar(node: Node, builder: Any, operand: int, dtype: str) -> Any:
    """A number as a vector; 0 where it is left out."""
    from tvm import relax

    value = node.input(operand)
    if value is None:
        return relax.const([0], dtype)
    return builder.emit(relax.op.reshape(value.tensor(builder), [1]))


def _program(tensors: Any, limited: bool, centers: bool) -> Any:
    """Whether each box is kept, in the order of scores; and those that are, for itself to read."""
    from tvm import te

    shape = tensors[1].shape
    return te.extern(
        [shape, shape],
        [*tensors],
        lambda ins, outs: _write(ins, outs, limited, centers),
        dtype=["int32", "int32"],
        name="suppression",
    )


def _write(ins: Any, outs: Any, limited: bool, centers: bool) -> Any:
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    boxes, scores, order, most, overlap, least = ins
    images, classes, number = scores.shape
    flags, kept = map(T.buffer_proxy, outs)
    with IRBuilder() as ib:
        with T.seq_scope():
            count = T.buffer_proxy(T.alloc_buffer((1,), "int32", scope="local"))
            free = T.buffer_proxy(T.alloc_buffer((1,), "int32", scope="local"))
            with T.serial(0, images) as image, T.serial(0, classes) as kind:
                count[0] = T.int32(0)
                with T.serial(0, number) as place:
                    box = order[image, kind, place]
                    free[0] = (count[0].astype("int64") < most[0]).astype("int32")
                    if limited:
                        with T.If(T.Not(scores[image, kind, box] > least[0])), T.Then():
                            free[0] = T.int32(0)
                    with T.If(free[0] == 1), T.Then(), T.serial(0, count[0]) as one:
                        other = kept[image, kind, one]
                        hidden = _overlaps(boxes, image, box, other, overlap[0], centers)
                        with T.If(hidden), T.Then():
                            free[0] = T.int32(0)
                    flags[image, kind, place] = free[0]
                    with T.If(free[0] == 1), T.Then():
                        kept[image, kind, count[0]] = box
                        count[0] = count[0] + T.int32(1)
        return ib.get()


def _overlaps(boxes: Any, image: Any, one: Any, other: Any, most: Any, centers: bool) -> Any:
    """Whether two boxes have more in common than a part of both together."""
    from tvm import tirx

    def ends(box: Any, axis: int) -> tuple[Any, Any]:
        if centers:
            middle, half = boxes[image, box, axis], boxes[image, box, axis + 2] / 2
            return middle - half, middle + half
        a, b = boxes[image, box, axis], boxes[image, box, axis + 2]
        return tirx.min(a, b), tirx.max(a, b)

    areas: list[Any] = [1.0, 1.0]
    common: Any = 1.0
    for axis in range(2):
        sides = [ends(box, axis) for box in (one, other)]
        areas = [area * (high - low) for area, (low, high) in zip(areas, sides, strict=True)]
        low = tirx.max(sides[0][0], sides[1][0])
        common = common * tirx.max(tirx.min(sides[0][1], sides[1][1]) - low, 0.0)
    whole = areas[0] + areas[1] - common
    real = tirx.all(common > 0, areas[0] > 0, areas[1] > 0, whole > 0)
    return tirx.all(real, common / whole > most)


SUPPRESSION: Mapping[str, Convert] = MappingProxyType({"NonMaxSuppression": _non_max_suppression})
