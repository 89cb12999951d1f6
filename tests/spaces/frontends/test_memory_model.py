"""Models that are objects: imported as their files are, and kept without the object."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tvm import te
from tvm.ir import IRModule

from spaces.codegen.executable import compile_plainly, run_once
from spaces.frontends.memory_model import model_in_memory
from spaces.frontends.model import Model, load_model
from spaces.frontends.model_copy import load_model_copy, save_model_copy
from spaces.frontends.shape_var import DynamicProgram, ShapeVar
from spaces.lowering.lower import lower
from tests.needed import needed_package
from tuner.errors import TunerError, UsageError
from tuner.request.model_spec import ModelSpec

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'
OPEN = ModelSpec("model")


def doubled(rows: Any = 4) -> list[te.Tensor]:
    x = te.placeholder((rows, 8), name="x")
    return [x, te.compute((rows, 8), lambda i, j: x[i, j] * 2, name="y")]


def program() -> Any:
    return te.create_prim_func(doubled()).with_attr("global_symbol", "doubled")


def network(rows: int | str = 4) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "sums/of two",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 8])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made


def output_of(model: Model, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    executable = compile_plainly(lower(model.module, LLVM), LLVM)
    inputs = [x, np.empty_like(x)] if model.kind == "function" else [x]
    return run_once(executable, inputs)[-1]


MODELS: dict[str, Callable[[], Any]] = {
    "doubled": program,
    "main": doubled,
    "alone": lambda: IRModule({"alone": program()}),
    "sums-of-two": network,
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_kept_without_its_object(name: str, tmp_path: Path) -> None:
    made = MODELS[name]()
    model = model_in_memory(made, OPEN)
    assert model.name == name
    assert model.content_hash == model_in_memory(made, OPEN).content_hash, "it stayed as it was"
    save_model_copy(model, tmp_path / "model")
    copy = load_model_copy(tmp_path / "model", model.content_hash)
    assert (copy.name, copy.inputs) == (model.name, model.inputs)
    x = np.arange(32, dtype="float32").reshape(4, 8)
    np.testing.assert_array_equal(output_of(copy, x), 2 * x)


@pytest.mark.parametrize(
    "made",
    [
        lambda: doubled(ShapeVar("T")),
        lambda: te.create_prim_func(doubled(ShapeVar("T"))),
        lambda: network("T"),
    ],
    ids=["tensors", "program", "onnx"],
)
def test_dimensions_stay_open(made: Callable[[], Any]) -> None:
    weights = (((("T", 5),), 0.5),)
    closed = ModelSpec("model", dims=(("T", (1, 5)),), weights=weights)
    model = model_in_memory(made(), closed)
    assert model.shapes == weights
    assert model.inputs[0].dims == ("T", 8)
    with pytest.raises(TunerError, match=r"^--dim N: no such dimension; the model has T$"):
        model_in_memory(made(), ModelSpec("model", dims=(("N", (1,)),)))


def test_a_program_may_bring_its_dimensions() -> None:
    rows = ShapeVar("T", [5, 1])
    model = model_in_memory(DynamicProgram(doubled(rows), [rows], {(5,): 2.0}), OPEN)
    assert model.shapes == (((("T", 5),), 2.0),)


def test_a_graph_is_the_same_model_as_the_file_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(network("T").SerializeToString())
    closed = ModelSpec(str(path), shapes=(("x", (2, 8)),))
    model = model_in_memory(network("T"), closed)
    assert model.content_hash == load_model(closed).content_hash
    assert model.inputs[0].shape == (2, 8)


def test_a_graph_without_its_weights_is_refused() -> None:
    made = network()
    tensor = made.graph.initializer.add()
    tensor.name, tensor.data_location = "w", TensorProto.EXTERNAL
    with pytest.raises(TunerError, match="its weights are in other files"):
        model_in_memory(made, OPEN)


@pytest.mark.parametrize(
    "wrong",
    [7, None, [], [program], network, "model.onnx", {}, type],
    ids=["number", "none", "empty", "functions", "function", "text", "dictionary", "class"],
)
def test_what_is_no_model_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="is no model: give a path") as refused:
        model_in_memory(wrong, OPEN)
    assert "\n" not in str(refused.value)


def test_only_a_function_takes_arguments() -> None:
    with pytest.raises(UsageError, match="args: only a function"):
        model_in_memory(program(), ModelSpec("model", args=(("m", 8),)))


def test_networks_of_pytorch() -> None:
    torch = needed_package("torch")
    layer, x = torch.nn.Linear(8, 8).eval(), torch.ones(4, 8)
    exported = torch.export.export(layer, (x,))
    for model in (model_in_memory(exported, OPEN), model_in_memory(layer, OPEN, (x,))):
        assert model.kind == "torch"
        np.testing.assert_allclose(
            output_of(model, x.numpy()), layer(x).detach().numpy(), rtol=1e-5, atol=1e-5
        )
    with pytest.raises(UsageError, match="needs them, and nothing else"):
        model_in_memory(layer, OPEN)
    with pytest.raises(UsageError, match="nothing else takes them"):
        model_in_memory(exported, OPEN, (x,))
    with pytest.raises(UsageError, match="with dynamic_shapes"):
        model_in_memory(layer, ModelSpec("model", dims=(("T", (1,)),)), (x,))
