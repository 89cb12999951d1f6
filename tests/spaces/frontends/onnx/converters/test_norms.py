"""Normalisations: types, axes, all outputs, large means, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.spaces.frontends.onnx.beside_onnxruntime import by_reference, number_of_programs, refusal
from tests.spaces.frontends.onnx.converters.one_node import Array, beside, model, values

pytestmark = pytest.mark.tvm

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype("float32") * 3 + 7
IMAGE = RNG.standard_normal((2, 4, 3, 5)).astype("float32")


def ones(*shape: int, dtype: str = "float32") -> Array:
    return (np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape) / 3).astype(dtype)


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_layers_in_each_type_along_each_axis(dtype: str, axis: int) -> None:
    shape = X.shape[axis:] if axis else X.shape
    fixed = {"s": ones(*shape, dtype=dtype), "b": ones(*shape, dtype=dtype)}
    near = 1e-2 if dtype == "float16" else 1e-5
    beside("LayerNormalization", {"x": X.astype(dtype)}, fixed=fixed, axis=axis, within=near)


@pytest.mark.parametrize("axis", [0, -1])
def test_layers_give_means_and_deviations(axis: int) -> None:
    fixed = {"s": ones(*(X.shape[axis:] if axis else X.shape))}
    beside("LayerNormalization", {"x": X}, fixed=fixed, axis=axis, results=["y", "m", "d"])


@pytest.mark.parametrize(
    ("scale", "bias"), [((4,), (4,)), ((3, 1), (1, 4)), ((3, 4), (4,)), ((), ())]
)
def test_scales_of_layers_are_spread(scale: tuple[int, ...], bias: tuple[int, ...]) -> None:
    fixed = {"s": ones(*scale), "b": ones(*bias)}
    beside("LayerNormalization", {"x": X}, fixed=fixed, axis=1, peer=by_reference)


def test_usual_layers_are_one_program() -> None:
    fixed = {"s": ones(4), "b": ones(4)}
    module = beside("LayerNormalization", {"x": X}, fixed=fixed)
    assert number_of_programs(module) == 1


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("axis", "shape"), [(0, (2, 3, 4)), (1, (3, 4)), (1, (4,))])
def test_root_mean_squares(dtype: str, axis: int, shape: tuple[int, ...]) -> None:
    x, scale = (X * 60).astype(dtype), ones(*shape, dtype=dtype)
    real = x.astype("float64")
    root = np.sqrt((real * real).mean(tuple(range(axis, 3)), keepdims=True) + 1e-5)
    peer = values((real / root * scale).astype(dtype))
    near = 1e-2 if dtype == "float16" else 1e-5
    fixed = {"s": scale}
    beside("RMSNormalization", {"x": x}, fixed=fixed, opset=23, axis=axis, peer=peer, within=near)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_instances_with_large_values(dtype: str) -> None:
    x = (IMAGE * 100 + 900).astype(dtype)
    fixed = {"s": ones(4, dtype=dtype), "b": ones(4, dtype=dtype)}
    near = 2e-2 if dtype == "float16" else 1e-4
    beside("InstanceNormalization", {"x": x}, fixed=fixed, within=near)


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("mean", [0, 300])
def test_groups_with_large_means(dtype: str, opset: int, mean: int) -> None:
    x = (IMAGE + mean).astype(dtype)
    scales = ones(2 if opset == 18 else 4, dtype=dtype)
    apart = x.astype("float64").reshape(2, 2, -1)
    apart -= apart.mean(-1, keepdims=True)
    apart /= np.sqrt((apart * apart).mean(-1, keepdims=True) + 1e-5)
    each = (np.repeat(scales, 2) if opset == 18 else scales).astype("float64")[:, None, None]
    wanted = (apart.reshape(x.shape) * each + each).astype(dtype)
    fixed = {"s": scales, "b": scales}
    near = 5e-3 if dtype == "float16" else 3e-4
    beside(
        "GroupNormalization", {"x": x}, fixed=fixed, num_groups=2, opset=opset,
        within=near, peer=values(wanted),
    )  # fmt: skip


@pytest.mark.parametrize("said", [{}, {"axes": [1, -1]}, {"axes": [0, 1, 2, 3]}])
def test_means_and_variances(said: dict[str, Any]) -> None:
    axes = tuple(said.get("axes", (0, 2, 3)))
    x = (IMAGE * 0.01 + 100).astype("float32")
    real = x.astype("float64")
    real -= real.mean(axes, keepdims=True)
    wanted = (real / np.sqrt((real * real).mean(axes, keepdims=True))).astype("float32")
    peer = values(wanted)
    beside("MeanVarianceNormalization", {"x": x}, opset=13, peer=peer, within=1e-4, **said)


def test_a_constant_has_no_variance() -> None:
    x = np.ones((1, 2, 3, 3), "float32")
    beside("MeanVarianceNormalization", {"x": x}, opset=13, peer=values(np.zeros_like(x)))


@pytest.mark.each_value
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, -1])
def test_lengths(p: int, axis: int) -> None:
    x = np.array([[3, -4, 0], [0, 0, 0], [1, 2, 0]], "float32")
    length = np.linalg.norm(x, p, axis, keepdims=True)
    wanted = x / np.where(length == 0, 1, length)
    beside("LpNormalization", {"x": x}, p=p, axis=axis, peer=values(wanted))


FIXED = {name: ones(4) for name in ("s", "b", "m", "v")}


@pytest.mark.parametrize(
    ("opset", "results", "said"),
    [
        (15, "y m v", {"training_mode": 1}),
        (15, "y", {"training_mode": 1}),
        (9, "y m v sm sv", {}),
        (6, "y", {}),
    ],
)
def test_norms_that_are_trained_are_refused(opset: int, results: str, said: dict[str, Any]) -> None:
    results_ = results.split()
    proto = model(
        "BatchNormalization", {"x": IMAGE}, fixed=FIXED, opset=opset, results=results_, **said
    )
    assert "operator BatchNormalization" in refusal(proto)


def test_batch_norms_of_each_place() -> None:
    fixed = {name: np.abs(IMAGE[n // 3]) + 1 for n, name in enumerate("sbmv")}
    beside("BatchNormalization", {"x": IMAGE}, fixed=fixed, opset=7, spatial=0)


@pytest.mark.parametrize("opset", [7, 10, 13])
def test_masks_of_dropouts(opset: int) -> None:
    beside("Dropout", {"x": X}, opset=opset, results=["y", "mask"])


def test_dropouts_of_nothing_in_training() -> None:
    fixed = {"ratio": np.float32(0), "mode": np.array(True)}
    beside("Dropout", {"x": X}, fixed=fixed, opset=13, results=["y", "mask"])


@pytest.mark.parametrize(("fed", "said"), [(False, "draws at random"), (True, "only a run knows")])
def test_dropouts_that_draw_are_refused(fed: bool, said: str) -> None:
    operands = {"ratio": np.asarray(0.5, "float32"), "mode": np.array(True)}
    inputs = {"x": X, **(operands if fed else {})}
    proto = model("Dropout", inputs, fixed={} if fed else operands, opset=13)
    assert said in refusal(proto)


def test_old_dropouts_say_that_they_are_tested() -> None:
    beside("Dropout", {"x": X}, opset=6, is_test=1, peer=values(X))
    assert "draws at random" in refusal(model("Dropout", {"x": X}, opset=6))
