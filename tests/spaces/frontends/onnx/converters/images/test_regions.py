"""Regions of images, and sums along channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.spaces.frontends.onnx.beside_onnxruntime import Array, by_reference, compare, refusal

pytestmark = pytest.mark.tvm

RNG = np.random.default_rng(0)


def one_node(
    operator: str,
    fed: Mapping[str, Array],
    *operands: str,
    opset: int = 19,
    constants: Mapping[str, Array] | None = None,
    **said: Any,
) -> Any:
    node = helper.make_node(operator, operands or list(fed), ["y"], **said)
    kind = helper.np_dtype_to_tensor_dtype
    inputs = [helper.make_tensor_value_info(k, kind(v.dtype), v.shape) for k, v in fed.items()]
    first = next(iter(fed.values())).dtype if operator != "NonMaxSuppression" else np.dtype("int64")
    y = helper.make_tensor_value_info("y", kind(first), None)
    weights = [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()]
    graph = helper.make_graph([node], "small", inputs, [y], weights)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


REGIONS = {
    "x": RNG.standard_normal((2, 2, 10, 10)).astype("float32"),
    "rois": np.array([[2, 2, 30, 26], [8, 4, 38, 38], [-8, 0, 5, 50]], "float32"),
    "numbers": np.array([0, 1, 1]),
}


@pytest.mark.each_value
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize(
    ("opset", "samples", "said"),
    [(16, 2, {}), (10, 0, {}), (16, 0, {"coordinate_transformation_mode": "output_half_pixel"})],
)
def test_regions_are_where_they_are_said_to_be(
    opset: int, samples: int, said: dict[str, Any], mode: str
) -> None:
    sizes = {"output_height": 3, "output_width": 2, "sampling_ratio": samples}
    proto = one_node(
        "RoiAlign", REGIONS, opset=opset, mode=mode, spatial_scale=0.25, **sizes, **said
    )
    compare(proto, REGIONS, within=1e-4)


CORNERS = [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [1, 0.9, 0, -0.1], [0, 10, 1, 11], [0, 10.1, 1, 11.1]]
BOXES = {
    "boxes": np.array([CORNERS, CORNERS[::-1]], "float32"),
    "scores": RNG.standard_normal((2, 2, 5)).astype("float32"),
}
NUMBERS = {
    "most": np.array([2]),
    "overlap": np.array([0.5], "float32"),
    "least": np.array([0.1], "float32"),
}


@pytest.mark.each_value
@pytest.mark.parametrize("centers", [0, 1])
@pytest.mark.parametrize(
    "operands",
    [
        pytest.param(["most", "overlap", "least"], id="all"),
        pytest.param(["most", "overlap"], id="scores below zero"),
        pytest.param(["most"], id="no overlap"),
        pytest.param(["most", "", "least"], id="one left out"),
        pytest.param([], id="no box"),
    ],
)
def test_boxes_that_are_kept(operands: list[str], centers: int) -> None:
    constants = {name: NUMBERS[name] for name in operands if name}
    names = ["boxes", "scores", *operands]
    said: dict[str, Any] = {"center_point_box": centers}
    proto = one_node("NonMaxSuppression", BOXES, *names, constants=constants, **said)
    compare(proto, BOXES)


def test_thresholds_that_a_run_knows() -> None:
    fed = BOXES | NUMBERS
    compare(one_node("NonMaxSuppression", fed), fed, fed | {"most": np.array([0])})


def test_each_box_has_a_score() -> None:
    for boxes in (BOXES["boxes"][:0], BOXES["boxes"][:, :2]):
        fed = {**BOXES, "boxes": boxes} | NUMBERS
        assert "NonMaxSuppression" in refusal(one_node("NonMaxSuppression", fed))


def test_as_many_overlaps_as_allowed_are_kept() -> None:
    fed = {
        "boxes": np.array([[[0, 0, 1, 2], [0, 1, 1, 3]]], "float32"),
        "scores": np.array([[[0.5, 0.5]]], "float32"),
        "most": np.array([9]),
        "overlap": np.array([1 / 3], "float32"),
    }
    compare(one_node("NonMaxSuppression", fed), fed)


@pytest.mark.each_value
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("dims", [(1, 6, 2, 3), (2, 5, 4), (2, 5)])
def test_responses_of_neighbours(dims: tuple[int, ...], size: int) -> None:
    """Other runtimes take some of these only, so NumPy says what is meant."""
    x = RNG.standard_normal(dims).astype("float32")
    before, after = (size - 1) // 2, size // 2
    widths = [(0, 0), (before, after)] + [(0, 0)] * (len(dims) - 2)
    squares = np.pad(x * x, widths)
    total = sum(squares[:, n : n + dims[1]] for n in range(size))
    wanted = x / (2 + 0.5 / size * total) ** 0.75
    proto = one_node("LRN", {"x": x}, size=size, alpha=0.5, bias=2.0)
    compare(proto, {"x": x}, peer=lambda *_: [wanted.astype("float32")])


def test_depth_keeps_a_channel_together() -> None:
    x = {"x": RNG.standard_normal((1, 2, 4, 6)).astype("float32")}
    compare(one_node("SpaceToDepth", x, blocksize=2), x)
    compare(one_node("DepthToSpace", {"x": x["x"].reshape(1, 8, 2, 3)}, blocksize=2, mode="CRD"),
            {"x": x["x"].reshape(1, 8, 2, 3)})  # fmt: skip


def test_depth_in_the_other_order() -> None:
    x = {"x": RNG.standard_normal((1, 2, 4, 6)).astype("float32")}
    proto = one_node("SpaceToDepth", x, blocksize=2, mode="CRD", opset=28)
    compare(proto, x, peer=by_reference)
