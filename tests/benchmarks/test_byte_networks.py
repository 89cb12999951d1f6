"""The networks of bytes that are compared with other runtimes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.byte_networks import FORMS, NETWORKS, mobilenet_v2, resnet50, write_network

OPERATOR = {"QDQ": "DequantizeLinear", "QOperator": "QLinearConv"}


@pytest.mark.parametrize("form", FORMS)
def test_a_network_is_written_with_what_it_gives(form: str, tmp_path: Path) -> None:
    write_network(resnet50(32, (1, 1)), FORMS[form], tmp_path)
    operators = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert operators.count(OPERATOR[form]) >= 9, "a stem and two blocks of four convolutions"
    about = json.loads((tmp_path / "about.json").read_text())
    with np.load(tmp_path / "samples.npz") as arrays:
        assert arrays["0 in x"].shape == (1, 3, 32, 32)
        out = arrays["0 out 0"]
    assert about["inputs"] == ["x"]
    assert out.shape == (1, 1000)
    assert len(np.unique(out)) > 20, "most steps are in use"


def test_networks_have_the_layers_of_their_papers() -> None:
    convolutions = {
        name: [node.op_type for node in make(32).graph.node].count("Conv")
        for name, make in (("resnet50", resnet50), ("mobilenet_v2", mobilenet_v2))
    }
    assert convolutions == {"resnet50": 53, "mobilenet_v2": 52}
    assert {*NETWORKS} == {*convolutions, "bert"}
