"""The quantized files of the table of coverage are what their names say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.coverage.quantized import FILES

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("bert, QDQ, scales of channels, rows of uint8", {"QuantizeLinear", "DequantizeLinear"}),
        ("bert, QOperator, one scale, all of uint8", {"QLinearMatMul"}),
        ("bert, dynamic", {"DynamicQuantizeLinear", "MatMulInteger"}),
        ("bert, optimised", {"SkipLayerNormalization", "FusedMatMul"}),
        ("llama, 4 bits, blocks of 32, words as well", {"MatMulNBits", "GatherBlockQuantized"}),
        ("llama, QDQ of int4 in blocks of 32", {"GroupQueryAttention", "DequantizeLinear"}),
    ],
)
def test_a_file_holds_its_operators_and_what_comes_out_of_each_call(
    name: str, operators: set[str], tmp_path: Path
) -> None:
    FILES[name](tmp_path)
    assert operators <= {node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node}
    about = json.loads((tmp_path / "about.json").read_text())
    with np.load(tmp_path / "samples.npz") as arrays:
        for number, _ in enumerate(about["samples"]):
            assert all(f"{number} in {given}" in arrays for given in about["inputs"])
            assert np.ptp(arrays[f"{number} out 0"]) > 0


def test_bfloat16_is_what_is_left_of_floats(tmp_path: Path) -> None:
    FILES["bert, bfloat16"](tmp_path)
    graph = onnx.load(tmp_path / "model.onnx").graph
    assert onnx.TensorProto.FLOAT not in {tensor.data_type for tensor in graph.initializer}
