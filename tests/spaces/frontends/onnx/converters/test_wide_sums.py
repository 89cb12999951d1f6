"""Products of halves in ONNX, which onnxruntime sums in float32: of 4096 ones a sum in halves makes
2048, since 2049 is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.spaces.frontends.onnx.beside_onnxruntime import compare, parsed

pytestmark = pytest.mark.tvm


def model(node: str, shape: str, **weights: Any) -> Any:
    head = '<ir_version: 8, opset_import: ["" : 18]>'
    return parsed(f"{head} g (float16[{shape}] x) => (float16 y) {{ {node} }}", **weights)


def ones(*shape: int) -> Any:
    return np.ones(shape, "float16")


@pytest.mark.parametrize(
    ("node", "data", "weights"),
    [
        ("y = Conv (x, w)", ones(1, 512, 3, 3), {"w": ones(2, 512, 3, 3)}),
        ("y = Conv (x, w, b)", ones(1, 512, 3, 3), {"w": ones(2, 512, 3, 3), "b": ones(2)}),
        ("y = Conv <group = 2> (x, w)", ones(1, 8192, 2), {"w": ones(2, 4096, 1)}),
        ("y = ConvTranspose (x, w)", ones(1, 4096, 2, 2), {"w": ones(4096, 2, 1, 1)}),
        (
            "y = ConvTranspose <output_shape = [2, 2]> (x, w)",
            ones(1, 4096, 2, 2),
            {"w": ones(4096, 2, 1, 1)},
        ),
    ],
)
def test_convolutions_of_halves_are_summed_in_single(node: str, data: Any, weights: Any) -> None:
    shape = ",".join(map(str, data.shape))
    compare(model(node, shape, **weights), {"x": data}, within=1e-3)


@pytest.mark.parametrize(("layer", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_recurrent_layers_of_halves_are_summed_in_single(layer: str, gates: int) -> None:
    weights = np.full((1, gates * 2, 4096), 2**-13, "float16")
    node = f"y = {layer} <hidden_size = 2> (x, w, r)"
    proto = model(node, "1,1,4096", w=weights, r=np.zeros((1, gates * 2, 2), "float16"))
    compare(proto, {"x": ones(1, 1, 4096)}, within=1e-3)
