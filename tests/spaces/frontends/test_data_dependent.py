"""Models in which a run computes shapes: what meets them is left alone, the rest is tuned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from spaces.codegen.executable import compile_module, export_library, run_once
from spaces.deploy.apply import apply_best
from spaces.frontends.inputs import make_inputs
from spaces.frontends.model import Model, load_model
from spaces.ir import tvm_compat
from spaces.ir.schedules import canonical_payload, new_schedule, task_module
from spaces.lowering.extract_tasks import describe_untuned, extract
from spaces.lowering.lower import lower
from tests.needed import needed_package
from tuner.candidate import Candidate, CandidateKind
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec
from tuner.request.options import TuneOptions
from tuner.task import Task

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
RNG = np.random.default_rng(0)


def weight(name: str, *shape: int) -> Any:
    return numpy_helper.from_array(RNG.standard_normal(shape).astype("float32"), name)


def constant(name: str, value: Any, dtype: str) -> Any:
    return numpy_helper.from_array(np.array(value, dtype), name)


def tensor(name: str, *shape: int | str | None, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, list(shape))


def saved(
    path: Path, nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], *known: Any
) -> ModelSpec:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(known))
    opset = [helper.make_opsetid("", 17)]
    proto = helper.make_model(graph, opset_imports=opset, ir_version=8)
    onnx.checker.check_model(proto)
    onnx.save(proto, str(path))
    return ModelSpec(str(path))


def found_pixels(path: Path, batch: int | str = 1) -> ModelSpec:
    """Where a convolution is above zero, and a product of the places, of which nobody knows how
    many there are; a product of known shape beside it."""
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("NonZero", ["r"], ["places"]),
        helper.make_node("Transpose", ["places"], ["rows"], perm=[1, 0]),
        helper.make_node("Cast", ["rows"], ["wide"], to=FLOAT),
        helper.make_node("MatMul", ["wide", "mix"], ["mixed"]),
        helper.make_node("ReduceMean", ["r"], ["mean"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["mean", "dense"], ["scores"]),
    ]
    return saved(
        path,
        nodes,
        [tensor("x", batch, 3, 12, 12)],
        [tensor("mixed", None, 8), tensor("scores", batch, 5)],
        *(weight("kernel", 8, 3, 3, 3), weight("mix", 4, 8), weight("dense", 8, 5)),
    )


def boxes_kept(path: Path) -> ModelSpec:
    """The boxes that are left of a detector's, by their scores."""
    nodes = [
        helper.make_node("MatMul", ["x", "dense"], ["flat"]),
        helper.make_node("Reshape", ["flat", "shape"], ["scores"]),
        helper.make_node(
            "NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["kept"]
        ),
    ]
    return saved(
        path,
        nodes,
        [tensor("x", 8, 32), tensor("boxes", 1, 16, 4)],
        [tensor("kept", None, 3, kind=INT)],
        weight("dense", 32, 16),
        constant("shape", [1, 8, 16], "int64"),
        constant("most", [3], "int64"),
        constant("iou", [0.5], "float32"),
        constant("least", [0.1], "float32"),
    )


def in_onnxruntime(spec: ModelSpec, model: Model, inputs: Sequence[Any]) -> list[Any]:
    runtime = needed_package("onnxruntime")
    session = runtime.InferenceSession(spec.source, providers=["CPUExecutionProvider"])
    feed = {i.name: array for i, array in zip(model.inputs, inputs, strict=True)}
    return list(session.run(None, feed))


def parallel(task: Task) -> Candidate:
    """A schedule by hand: the outermost loop of each block parallel."""
    schedule = new_schedule(task_module(task.module))
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        schedule.parallel(schedule.get_loops(block)[0])
    return Candidate(CandidateKind.TRACE, canonical_payload(schedule.trace), "default")


def test_the_rest_is_tuned_and_the_library_is_right(tmp_path: Path) -> None:
    spec = found_pixels(tmp_path / "net.onnx")
    model = load_model(spec)
    lowered = lower(model.module, LLVM)
    tasks = extract(lowered, LLVM)
    left = describe_untuned(lowered)
    assert any("conv2d" in task.name for task in tasks)
    assert any("matmul" in task.name for task in tasks)
    assert left.startswith("2 functions are left as they are, since shapes in there follow from")
    assert not {task.name for task in tasks} & set(left.rpartition(": ")[2].split(", "))

    tuned = apply_best({task.key: parallel(task) for task in tasks}, LLVM)(lowered)
    scheduled = [
        n
        for n, f in tvm_compat.prim_funcs(tuned)
        if tvm_compat.attribute(f, tvm_compat.IS_SCHEDULED)
    ]
    assert sorted(scheduled) == sorted(task.name for task in tasks)
    inputs = make_inputs(model.inputs)
    executable = compile_module(tuned, LLVM)
    got, expected = run_once(executable, inputs), in_onnxruntime(spec, model, inputs)
    assert got[0].shape == expected[0].shape
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    export_library(executable, tmp_path / "net.so")
    assert (tmp_path / "net.so").exists()


def test_symbolic_dimensions_are_tuned_beside_what_only_a_run_knows(tmp_path: Path) -> None:
    spec = found_pixels(tmp_path / "net.onnx", "batch")
    model = load_model(ModelSpec(spec.source, dims=(("batch", (1, 2, 4)),)))
    lowered = lower(model.module, LLVM)
    tasks = extract(lowered, LLVM, None, model.shapes)
    assert any(dict(task.shapes[0][0]) for task in tasks)
    assert describe_untuned(lowered, model.shapes).startswith("2 functions")


def test_boxes_that_a_suppression_leaves(tmp_path: Path) -> None:
    spec = boxes_kept(tmp_path / "net.onnx")
    model = load_model(spec)
    lowered = lower(model.module, LLVM)
    assert "matmul" in [task.name for task in extract(lowered, LLVM)]
    assert "rows_of_boxes" in describe_untuned(lowered)
    corners = np.sort(np.random.default_rng(1).random((1, 16, 2, 2)), axis=2).reshape(1, 16, 4)
    inputs = [make_inputs(model.inputs)[0], corners.astype("float32")]
    (got,) = run_once(compile_module(lowered, LLVM), inputs)
    np.testing.assert_array_equal(got, in_onnxruntime(spec, model, inputs)[0])


def test_of_a_model_that_is_nothing_else_that_is_what_is_said(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Transpose", ["places"], ["rows"], perm=[1, 0]),
    ]
    outputs = [tensor("rows", None, 2, kind=INT)]
    model = load_model(saved(tmp_path / "net.onnx", nodes, [tensor("x", 4, 4)], outputs))
    with pytest.raises(TunerError, match="nothing to tune: 1 function is left as it is") as said:
        extract(lower(model.module, LLVM), LLVM)
    assert "--dim" not in str(said.value)


def test_the_command_says_it_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    from cluster.app.cli import run

    path = found_pixels(tmp_path / "net.onnx").source
    assert run(["tasks", path, "--target", LLVM]) == 0
    assert capsys.readouterr().out.count("2 functions are left as they are") == 1
    assert run(["tasks", path, "--target", LLVM, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["note"].startswith("2 functions")


def test_a_run_says_it_among_its_warnings(tmp_path: Path) -> None:
    from cluster.app.driver.prepare import prepare
    from cluster.app.tune import _add_note, _drop_repeated
    from cluster.search.job import SearchState
    from tuner.run_location import RunLocation

    spec = found_pixels(tmp_path / "net.onnx")
    options = TuneOptions(spec, target=LLVM)
    note = prepare(options, RunLocation.of(tmp_path / "run")).note
    assert note.startswith("2 functions are left as they are")
    state = SearchState(None, "trials", warnings=("another",))
    assert _add_note(state, note).warnings == (note, "another")
    assert _add_note(state, "") is state
    assert _drop_repeated({"a": note, "b": note, "c": ""}) == {"a": note, "c": ""}
