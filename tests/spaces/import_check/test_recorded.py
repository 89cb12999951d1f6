"""What PyTorch computes is recorded where a model is read, and compared wherever it is checked."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.search.import_check import compare_copy
from spaces.frontends.memory_model import model_in_memory
from spaces.frontends.model import Model
from spaces.frontends.model_copy import load_model_copy, save_model_copy
from spaces.frontends.references import Reference, References, load_references, save_references
from spaces.import_check.answers import answers_for, record
from spaces.import_check.check import check_import
from spaces.import_check.sources import CannotRun
from spaces.ir.element_types import numpy_dtype
from tests.needed import needed_package
from tests.spaces.frontends.onnx.beside_onnxruntime import TARGET
from tuner.request.model_spec import ModelSpec
from tuner.runs.import_check import Limits

torch = needed_package("torch")
pytestmark = pytest.mark.tvm

LIMITS = Limits(60.0, 1 << 40)


class Scaled(torch.nn.Module):  # type: ignore[misc, name-defined]
    """With an argument that is fixed when it is exported."""

    def forward(self, x: Any, factor: Any, less: Any = None) -> Any:
        found = torch.relu(x) * factor
        return found if less is None else found - less


def export(*args: Any, dynamic: Any = None) -> Any:
    with warnings.catch_warnings():  # PyTorch warns of its own code
        warnings.simplefilter("ignore")
        return torch.export.export(Scaled(), args, dynamic_shapes=dynamic)


def open_model() -> Model:
    dynamic = {"x": {0: torch.export.Dim("n", max=64)}, "factor": None, "less": None}
    program = export(torch.ones(8, 3), 2.0, None, dynamic=dynamic)
    return model_in_memory(program, ModelSpec("model", dims=(("x_0", (1, 2, 8)),)))


def test_a_model_from_memory_is_compared_without_pytorch(tmp_path: Path) -> None:
    model = open_model()
    references = record(model, (), 60.0)
    assert references is not None
    assert [(one.instance, one.number) for one in references.known] == [
        ((("x_0", 1),), 0), ((("x_0", 1),), 1), ((("x_0", 2),), 0), ((("x_0", 8),), 0),
    ]  # fmt: skip
    for one in references.known:
        np.testing.assert_array_equal(one.outputs[0], np.maximum(one.inputs[0], 0) * 2)
    save_model_copy(model, tmp_path, references=references)
    check = compare_copy(tmp_path, model.content_hash, TARGET)
    assert (check.state, check.said) == ("passed", f"as torch {torch.__version__} on 4 inputs")


def test_a_wrong_import_is_found(tmp_path: Path) -> None:
    model = open_model()
    references = record(model, (), 60.0)
    assert references is not None
    last = references.known[-1]
    wrong = replace(last, outputs=(last.outputs[0] + 1,))
    changed = replace(references, known=(*references.known[:-1], wrong))
    check = check_import(replace(model, torch_program=None), TARGET, (), LIMITS, None, changed)
    assert check.state == "differs"
    assert check.said.startswith("output 0: largest error 1")


def test_inputs_of_a_user_are_those_that_are_compared(tmp_path: Path) -> None:
    program = export(torch.ones(2, 3), 2.0)
    file = tmp_path / "x.npy"
    np.save(file, np.full((2, 3), 7, "float32"))
    given = (("x", file),)
    references = record(model_in_memory(program, ModelSpec("model")), given, 60.0)
    assert references is not None
    assert {float(one.outputs[0].max()) for one in references.known} == {14.0}


def test_time_that_is_spent_is_said() -> None:
    references = record(open_model(), (), 0.0)
    assert references is not None
    assert len(references.known) == 1
    assert references.refused == "PyTorch took more than 0 s for what came before"


def test_without_a_record_it_is_skipped(tmp_path: Path) -> None:
    model = open_model()
    save_model_copy(model, tmp_path)
    copy = load_model_copy(tmp_path)
    with pytest.raises(CannotRun, match="was not recorded"):
        answers_for(copy, (), load_references(tmp_path), 1.0)


def test_elements_of_all_types_are_kept(tmp_path: Path) -> None:
    types = ("float32", "bfloat16", "float8_e4m3fn", "bool", "int64", "uint8")
    arrays = tuple(np.ones((2, 0, 1) if t == "int64" else (2, 3), numpy_dtype(t)) for t in types)
    scalar = np.array(3, "float16")
    known = Reference((("n", 3),), 1, arrays, (scalar,))
    save_references(References("torch 2", (known,), "why"), tmp_path)
    found = load_references(tmp_path)
    assert found is not None
    assert (found.name, found.refused, found.known[0].instance) == ("torch 2", "why", (("n", 3),))
    again = (*found.known[0].inputs, *found.known[0].outputs)
    for one, other in zip((*arrays, scalar), again, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)
