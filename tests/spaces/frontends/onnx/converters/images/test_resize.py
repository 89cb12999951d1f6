"""`Resize` and `Upsample` of every version, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.spaces.frontends.onnx.beside_onnxruntime import compare, lowered, refusal

pytestmark = pytest.mark.tvm

RNG = np.random.default_rng(0)
Dims = tuple[int | str, ...]


def resize(
    dims: Dims,
    opset: int = 19,
    dtype: int = TensorProto.FLOAT,
    operator: str = "Resize",
    operands: tuple[str, ...] = ("roi", "scales", "sizes"),
    **said: Any,
) -> Any:
    """A graph of one node. What is said of an operand is a constant, the rest are attributes."""
    weights = {k: np.asarray(said.pop(k)) for k in operands if k in said}
    weights = {k: a.astype("int64" if k == "sizes" else "float32") for k, a in weights.items()}
    names = [name if name in weights else "" for name in operands]
    while names and not names[-1]:
        names.pop()
    node = helper.make_node(operator, ["x", *names], ["y"], **said)
    x = helper.make_tensor_value_info("x", dtype, dims)
    y = helper.make_tensor_value_info("y", dtype, None)
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], "small", [x], [y], constants)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def drawn(*dims: int, dtype: str = "float32") -> Any:
    return {"x": (RNG.standard_normal(dims) * 40).astype(dtype)}


HALF = {"scales": [1, 1, 0.5, 0.75]}
CROP = {
    "coordinate_transformation_mode": "tf_crop_and_resize",
    "roi": [0, 0, 0.2, -0.1, 1, 1, 0.7, 1.3],
    "extrapolation_value": 2.5,
}


@pytest.mark.each_value
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"scales": [1, 1, 2, 3]}, id="whole factors"),
        pytest.param({"scales": [1, 1, 1.5, 2.5]}, id="factors that do not divide"),
        pytest.param(HALF, id="smaller"),
        pytest.param({"sizes": [1, 2, 8, 3]}, id="sizes"),
        pytest.param(
            {"sizes": [1, 2, 1, 9], "coordinate_transformation_mode": "align_corners"},
            id="corners of one element",
        ),
        pytest.param(
            {"sizes": [1, 2, 1, 9], "coordinate_transformation_mode": "pytorch_half_pixel"},
            id="half pixels of one element",
        ),
        pytest.param(
            HALF | {"coordinate_transformation_mode": "half_pixel_symmetric"}, id="symmetric"
        ),
        pytest.param(HALF | {"coordinate_transformation_mode": "asymmetric"}, id="asymmetric"),
        pytest.param(CROP | {"sizes": [1, 2, 5, 7]}, id="a part"),
        pytest.param({"sizes": [7, 4], "axes": [3, 2]}, id="of named axes"),
    ],
)
def test_makes_images_of_what_onnxruntime_does(said: dict[str, Any], mode: str) -> None:
    compare(resize((1, 2, 5, 6), mode=mode, **said), drawn(1, 2, 5, 6), within=1e-4)


@pytest.mark.each_value
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("transformation", ["half_pixel", "asymmetric", "align_corners"])
def test_rounds_to_the_nearest_as_said(rounding: str, transformation: str) -> None:
    said = {"nearest_mode": rounding, "coordinate_transformation_mode": transformation}
    compare(resize((1, 1, 6, 5), scales=[1, 1, 0.5, 3], **said), drawn(1, 1, 6, 5))


@pytest.mark.parametrize("said", [{"antialias": 1}, {"exclude_outside": 1, "cubic_coeff_a": -0.5}])
def test_smooths_with_a_cubic(said: dict[str, Any]) -> None:
    proto = resize((1, 1, 8, 8), mode="cubic", sizes=[1, 1, 3, 5], **said)
    compare(proto, drawn(1, 1, 8, 8), within=1e-4)


@pytest.mark.parametrize("excludes", [0, 1])
def test_smooths_what_becomes_smaller(excludes: int) -> None:
    said = {"antialias": 1, "exclude_outside": excludes}
    proto = resize((1, 1, 8, 8), mode="linear", sizes=[1, 1, 3, 12], **said)
    compare(proto, drawn(1, 1, 8, 8), within=1e-4)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_keeps_the_ratio_of_sizes(policy: str) -> None:
    said = {"keep_aspect_ratio_policy": policy, "axes": [2, 3], "sizes": [8, 9]}
    compare(resize((1, 2, 4, 8), **said), drawn(1, 2, 4, 8))


def test_resizes_channels_last_and_channels() -> None:
    said = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    compare(resize((1, 4, 4, 3), scales=[1, 2, 2, 1], **said), drawn(1, 4, 4, 3))
    compare(resize((1, 2, 4, 4), scales=[1, 2, 1.5, 2], **said), drawn(1, 2, 4, 4))
    compare(resize((4, 5), scales=[2, 2]), drawn(4, 5))


@pytest.mark.parametrize(
    ("opset", "operator", "scales"),
    [(7, "Upsample", None), (9, "Upsample", 2), (10, "Resize", 2), (10, "Resize", 0.6)],
)
def test_old_versions(opset: int, operator: str, scales: float | None) -> None:
    said: dict[str, Any] = {"scales": [1.0, 1.0, 2.0, scales or 2.0]}
    operands = () if scales is None else ("scales",)
    proto = resize((1, 2, 5, 6), opset, operator=operator, operands=operands, **said)
    compare(proto, drawn(1, 2, 5, 6))


def test_operands_without_elements_are_left_out() -> None:
    """As PyTorch writes it in version 11."""
    said = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    proto = resize((1, 2, 4, 4), 11, roi=[], scales=[], sizes=[1, 2, 7, 9], **said)
    compare(proto, drawn(1, 2, 4, 4))


@pytest.mark.parametrize("dtype", ["float16", "uint8", "int32"])
def test_other_types(dtype: str) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x = {"x": RNG.integers(0, 200, (1, 1, 4, 5)).astype(dtype)}
    compare(resize((1, 1, 4, 5), dtype=kind, scales=[1, 1, 2, 2]), x)
    proto = resize((1, 1, 4, 5), dtype=kind, scales=[1, 1, 2, 1.5], mode="linear")
    compare(proto, x, within=1e-3)


def test_large_whole_numbers_stay_what_they_are() -> None:
    x = {"x": np.full((1, 1, 2, 2), 2**24 + 1, "int32")}
    compare(resize((1, 1, 2, 2), dtype=TensorProto.INT32, scales=[1, 1, 2, 2]), x)


@pytest.mark.each_value
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "said",
    [
        {"scales": [1, 1, 2, 2]},
        {"scales": [1, 1, 1.5, 0.7]},
        {"sizes": [1, 2, 7, 9]},
        {"sizes": [1, 2, 7, 9], "coordinate_transformation_mode": "align_corners"},
    ],
)
def test_open_sizes(said: dict[str, Any], mode: str) -> None:
    """0.7 of 10 is 7 in float32, and 6 in exact numbers."""
    proto = resize((1, 2, "H", "W"), mode=mode, **said)
    compare(proto, drawn(1, 2, 5, 6), drawn(1, 2, 6, 10), within=1e-4)


def test_images_stay_as_many_as_they_were() -> None:
    """Another number of them would be made from one another."""
    proto = resize(("N", 2, 8, 8), sizes=[1, 2, 3, 3], mode="linear", antialias=1)
    assert "with N=8, operator Resize (node of output y) has 7" in refusal(proto)


def test_usual_images_are_one_program_of_tvm() -> None:
    for mode in ("nearest", "linear"):
        for proto in (
            resize((1, 2, 4, 4), mode=mode, scales=[1, 1, 2, 2]),
            resize((1, 2, "H", "W"), mode=mode, scales=[1, 1, 2, 2]),
        ):
            names = [str(name) for name in lowered(proto).get_global_vars()]
            assert sum("resize2d" in name for name in names) == 1, names


def test_scales_that_a_run_knows_are_refused() -> None:
    proto = resize((1, 1, 4, 4), scales=[1, 1, 2, 2])
    proto.graph.input.append(helper.make_tensor_value_info("scales", TensorProto.FLOAT, [4]))
    del proto.graph.initializer[:]
    assert "its scales or sizes are known when the model runs" in refusal(proto)
