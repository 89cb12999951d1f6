"""Convolutions and pooling whose padding follows from something else, and indices of maxima."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.spaces.frontends.onnx.beside_onnxruntime import by_onnxruntime, compare, refusal

pytestmark = pytest.mark.tvm

RNG = np.random.default_rng(0)


def window(
    operator: str,
    dims: tuple[int | str, ...],
    *weights: tuple[int, ...],
    opset: int = 19,
    outputs: int = 1,
    dtype: int = TensorProto.FLOAT,
    **said: Any,
) -> Any:
    """A graph of one node, with drawn weights of these shapes."""
    names = [f"w{number}" for number in range(len(weights))]
    results = ["y", "places"][:outputs]
    node = helper.make_node(operator, ["x", *names], results, **said)
    x = helper.make_tensor_value_info("x", dtype, dims)
    ys = [
        helper.make_tensor_value_info(name, kind, None)
        for name, kind in zip(results, (dtype, TensorProto.INT64), strict=False)
    ]
    constants = [
        numpy_helper.from_array(RNG.standard_normal(shape).astype("float32"), name)
        for name, shape in zip(names, weights, strict=True)
    ]
    graph = helper.make_graph([node], "small", [x], ys, constants)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def drawn(*dims: int, dtype: str = "float32") -> Any:
    return {"x": (RNG.standard_normal(dims) * 9).astype(dtype)}


@pytest.mark.each_value
@pytest.mark.parametrize("automatic", ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(
    ("size", "wanted", "kernel", "said"),
    [
        pytest.param([7, 7], [14, 15], [3, 4], {"strides": [2, 2]}, id="a little less"),
        pytest.param([3, 3], [10, 8], [3, 3], {"strides": [3, 2]}, id="more"),
        pytest.param([5, 4], [6, 4], [4, 3], {"strides": [2, 2]}, id="much less"),
        pytest.param(
            [5, 4], [10, 13], [2, 3], {"strides": [2, 3], "dilations": [2, 2], "group": 2}, id="all"
        ),
        pytest.param([5], [11], [3], {"strides": [2]}, id="one axis"),
        pytest.param([3, 4, 3], [5, 8, 6], [2, 3, 2], {"strides": [2, 2, 2]}, id="three axes"),
    ],
)
def test_a_transposed_convolution_has_the_shape_that_is_said(
    size: list[int], wanted: list[int], kernel: list[int], said: dict[str, Any], automatic: str
) -> None:
    groups = said.get("group", 1)
    proto = window(
        "ConvTranspose",
        (1, 4, *size),
        (4, 6 // groups, *kernel),
        (6,),
        output_shape=wanted,
        auto_pad=automatic,
        **said,
    )
    compare(proto, drawn(1, 4, *size), within=1e-4)


def test_a_shape_beyond_reach_is_refused() -> None:
    proto = window("ConvTranspose", (1, 2, 4, 4), (2, 2, 3, 3), output_shape=[12, 6])
    assert "its output_shape [12, 6] is larger" in refusal(proto)


@pytest.mark.each_value
@pytest.mark.parametrize("automatic", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
def test_pools_with_automatic_padding(operator: str, automatic: str) -> None:
    for size, kernel, strides in (([7, 6], [3, 2], [2, 1]), ([7, 8], [2, 3], [3, 2])):
        said = {"kernel_shape": kernel, "strides": strides, "auto_pad": automatic}
        compare(window(operator, (1, 2, *size), **said), drawn(1, 2, *size), within=1e-4)


@pytest.mark.parametrize(
    "said",
    [
        {"pads": [1, 1, 1, 1], "ceil_mode": 1, "p": 1},
        {"pads": [0, 1, 1, 0], "ceil_mode": 1, "p": 3},
        {"dilations": [2, 1], "p": 2},
    ],
)
def test_norms_of_windows(said: dict[str, Any]) -> None:
    proto = window("LpPool", (1, 2, 6, 6), kernel_shape=[2, 3], strides=[2, 2], **said)
    compare(proto, drawn(1, 2, 6, 6), within=1e-4)


def test_padding_of_open_sizes() -> None:
    said = {"kernel_shape": [3, 2], "auto_pad": "SAME_LOWER"}
    proto = window("MaxPool", (1, 2, "H", "W"), **said)
    compare(proto, drawn(1, 2, 5, 6), drawn(1, 2, 4, 9))
    proto = window("AveragePool", (1, 2, "H", 6), strides=[2, 2], **said)
    assert "SAME_LOWER, depends on sizes" in refusal(proto)


def test_automatic_padding_with_dilations_is_refused() -> None:
    said = {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER", "dilations": [2, 1]}
    assert "runtimes make two shapes" in refusal(window("MaxPool", (1, 1, 6, 6), **said))


@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        ("float32", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("int8", {"kernel_shape": [3, 2], "pads": [1, 0, 2, 1], "ceil_mode": 1}),
        ("float32", {"kernel_shape": [2, 2], "dilations": [2, 1], "pads": [1, 1, 1, 1]}),
        ("float32", {"kernel_shape": [3], "auto_pad": "SAME_UPPER"}),
        ("uint8", {"kernel_shape": [2, 2], "strides": [2, 2], "storage_order": 1}),
    ],
)
def test_where_maxima_are(dtype: str, said: dict[str, Any]) -> None:
    dims = (2, 2, *(6, 5)[: len(said["kernel_shape"])])
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    proto = window("MaxPool", dims, outputs=2, dtype=kind, **said)
    compare(proto, drawn(*dims, dtype=dtype), {"x": np.zeros(dims, dtype)})


@pytest.mark.parametrize(("size", "pads"), [((7, 6), [0, 0, 0, 0]), ((6, 5), [1, 0, 0, 1])])
def test_maxima_are_put_back(size: tuple[int, ...], pads: list[int]) -> None:
    said = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": pads}
    proto = window("MaxPool", (1, 2, *size), outputs=2, **said)
    proto.graph.node.append(helper.make_node("MaxUnpool", ["y", "places"], ["z"], **said))
    del proto.graph.output[:]
    proto.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    compare(proto, drawn(1, 2, *size))


@pytest.mark.parametrize(
    ("operator", "said"),
    [
        ("AveragePool", {"kernel_shape": [30, 30]}),
        ("AveragePool", {"kernel_shape": [30, 30], "pads": [3] * 4, "ceil_mode": 1,
                         "strides": [8, 8], "count_include_pad": 1}),
        ("LpPool", {"kernel_shape": [9, 9], "p": 1}),
        ("GlobalAveragePool", {}),
        ("GlobalLpPool", {"p": 1}),
    ],
)  # fmt: skip
def test_sums_of_half_precision_are_made_in_single(operator: str, said: dict[str, Any]) -> None:
    """The sum of a window is larger than a number of half precision can be."""
    size = 20 if operator == "GlobalLpPool" else 40
    proto = window(operator, (1, 2, size, size), dtype=TensorProto.FLOAT16, **said)
    x = RNG.uniform(100, 150, (1, 2, size, size)).astype("float16")
    single = window(operator, (1, 2, size, size), **said)
    wanted = by_onnxruntime(single, {"x": x.astype("float32")})[0].astype("float16")
    compare(proto, {"x": x}, peer=lambda *_: [wanted], within=2e-3)
