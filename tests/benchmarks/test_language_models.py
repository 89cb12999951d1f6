"""Language models of `benchmarks.formats`: the file, what it is fed, what should come out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.language_models import MODELS, LanguageModel
from tests.spaces.frontends.onnx.beside_onnxruntime import by_onnxruntime
from tests.spaces.frontends.onnx.language_models import Sizes

pytestmark = pytest.mark.tvm

SMALL = LanguageModel("qwen3", norms=True, layers=1, sizes=Sizes(places=600))
STEP, PROMPT = 1, 3


def test_a_model_is_written_with_what_comes_out_of_whole_rows(tmp_path: Path) -> None:
    """Which is what onnxruntime computes of the file itself, but for 8 bits."""
    folder = tmp_path / "model"
    assert SMALL.write(folder) == (folder / "model.onnx").stat().st_size
    proto = onnx.load(folder / "model.onnx")
    packed = [node for node in proto.graph.node if node.op_type == "MatMulNBits"]
    assert len(packed) == 8
    said = [{a.name: a.i for a in node.attribute} for node in packed]
    assert all(each["accuracy_level"] == 4 and each["bits"] == 4 for each in said)
    names = json.loads((folder / "about.json").read_text())["inputs"]
    with np.load(folder / "samples.npz") as arrays:
        for number in (STEP, PROMPT):
            feeds = {name: arrays[f"{number} in {name}"] for name in names}
            rounded = by_onnxruntime(proto, feeds)[0]
            exact = arrays[f"{number} out 0"]
            apart = np.abs(rounded - exact).max() / np.abs(exact).max()
            assert 1e-5 < apart < 0.1


def test_it_is_tuned_for_the_lengths_of_its_calls(tmp_path: Path) -> None:
    """A mask is as long as what is past and what is new: its length is tied to theirs."""
    SMALL.write(tmp_path / "model")
    shapes = json.loads((tmp_path / "model" / "weights.json").read_text())
    assert {tuple(shape) for shape in shapes} == {("s", "p", "weight")}
    assert len({json.dumps(shape) for shape in shapes}) == len(shapes) == 5


def test_rows_have_names_of_their_own() -> None:
    names = [model.name(call) for model in MODELS for call in ((1, 16), (1, 128), (32, 0))]
    assert names[:3] == ["llama int4 step after 16", "llama int4 step after 128",
                         "llama int4 prompt of 32"]  # fmt: skip
    assert len({*names}) == len(names)
