"""Models with symbolic dimensions, from functions, graphs and ONNX files; and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from spaces.codegen.executable import compile_module, run_once
from spaces.frontends.inputs import make_inputs
from spaces.frontends.model import Model, load_model
from spaces.frontends.model_copy import load_model_copy, save_model_copy
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec
from tuner.task import Shapes

pytestmark = pytest.mark.tvm

EXAMPLES = Path(__file__).parents[3] / "examples"
LLVM = '{"kind":"llvm","num-cores":1}'
SEQUENCE = (("sequence", (1, 4, 7)),)

FUNCTIONS = """
from tvm import relax, te, tirx, topi

from tuner import DynamicProgram, ShapeVar


def program(T):
    a = te.placeholder((16 * T, 8), name="A")
    out = te.compute((16 * T, 8), lambda i, j: a[i, j] + 1.0, name="B")
    return te.create_prim_func([a, out])


def scaled(T: ShapeVar):
    return program(T)


def weighted():
    T = ShapeVar("T", [5, 24])
    return DynamicProgram(program(T), [T], {(5,): 3, (24,): 1})


def bare():
    T = ShapeVar("T")
    return DynamicProgram(program(T), [T])


def rows(make):
    T = ShapeVar("T")
    a = te.placeholder((make(T), 8), name="A")
    out = te.compute((make(T), 8), lambda i, j: a[i, j] + 1.0, name="B")
    return te.create_prim_func([a, out])


def shorter():
    return rows(lambda T: T - 1)


def halved():
    return rows(lambda T: T // 2)


def square():
    return rows(lambda T: T * T)


def told(make):
    T = ShapeVar("T")
    a = te.placeholder((make(T), 8), name="A")
    out = te.compute(a.shape, lambda i, j: a[i, j] + tirx.Cast("float32", T.var), name="B")
    return te.create_prim_func([a, out])


def told_by_halves():
    return told(lambda T: T // 2)


def told_by_one_less():
    return told(lambda T: T - 1)


def graph_of_halves():
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n // 2, 4), "float32"))
    b = relax.BlockBuilder()
    with b.function("main", [x]):
        b.emit_func_output(b.emit(relax.op.broadcast_to(relax.const(1.0), (n, 4))))
    return b.get()


def strided():
    N, H, W = ShapeVar("N", [1, 2]), ShapeVar("H", [5, 8]), ShapeVar("W", [8])
    x, w = te.placeholder((N, 3, H, W), name="x"), te.placeholder((4, 3, 3, 3), name="w")
    out = topi.nn.conv2d(x, w, 2, 1, 1, "NCHW")
    return DynamicProgram(te.create_prim_func([x, w, out]), [N, H, W])


def strange():
    T = ShapeVar("T", [5, 24])
    return DynamicProgram(program(T), [T], {(6,): 1})


def open_graph():
    n = tirx.Var("n", "int64")
    x, y = (relax.Var(v, relax.TensorType((n, 4), "float32")) for v in "xy")
    b = relax.BlockBuilder()
    with b.function("main", [x, y]):
        b.emit_func_output(b.emit(relax.op.add(x, y)))
    return b.get()
"""


@pytest.fixture
def functions(tmp_path: Path) -> str:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    return f"{tmp_path}/functions.py"


@pytest.fixture
def sequence(tmp_path: Path) -> Path:
    """A graph over (batch 2, sequence, 8): a product with weights, ReLU, and the input again."""
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.standard_normal((8, 8)).astype("float32"), "w")
    dims = [2, "sequence", 8]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], name="product"),
        helper.make_node("Relu", ["xw"], ["positive"], name="relu"),
        helper.make_node("Add", ["positive", "x"], ["y"], name="residual"),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, str(tmp_path / "net.onnx"))
    return tmp_path / "net.onnx"


def load(source: str | Path, **spec: Any) -> Model:
    return load_model(ModelSpec(str(source), **spec))


def refusal(source: str | Path, **spec: Any) -> str:
    with pytest.raises(TunerError) as refused:
        load(source, **spec)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def values(shapes: Shapes) -> list[tuple[int, ...]]:
    return [tuple(v for _, v in instance) for instance, _ in shapes]


def test_a_function_gets_a_variable_for_a_dimension_that_it_names() -> None:
    model = load(f"{EXAMPLES}/gemm.py:gemm", args=(("n", 8), ("k", 4)), dims=(("M", (5, 64)),))
    assert [i.dims for i in model.inputs] == [("M", 4), (), ("M", 8)]
    assert [i.shape for i in model.inputs] == [(64, 4), (4, 8), (64, 8)]
    assert model.shapes == (((("M", 5),), 1.0), ((("M", 64),), 1.0))


def test_a_multiple_of_a_dimension_is_named_after_it(functions: str) -> None:
    model = load(f"{functions}:scaled", dims=(("T", (2, 3)),))
    assert [i.dims for i in model.inputs] == [("T_x16", 8), ("T_x16", 8)]
    assert [i.shape for i in model.inputs] == [(48, 8), (48, 8)]
    assert [i.at({"T": 2}).shape for i in model.inputs] == [(32, 8), (32, 8)]
    (task,) = extract(lower(model.module, LLVM), LLVM, shapes=model.shapes)
    assert values(task.shapes) == [(32,), (48,)]


def test_a_graph_over_a_multiple_computes_any_number_of_rows() -> None:
    model = load(f"{EXAMPLES}/dense.py:dense", args=(("features", 8),), dims=(("T", (1, 2)),))
    assert [i.dims for i in model.inputs] == [("T_x16", 8)]
    executable = compile_module(lower(model.module, LLVM), LLVM)
    static = load(f"{EXAMPLES}/dense.py:dense", args=(("features", 8), ("batch", 48)))
    (x,) = make_inputs([model.inputs[0].at({"T": 3})])
    (want,) = run_once(compile_module(lower(static.module, LLVM), LLVM), [x])
    np.testing.assert_allclose(run_once(executable, [x])[0], want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(run_once(executable, [x[:7]])[0], want[:7], rtol=1e-5, atol=1e-5)


def test_a_program_brings_its_own_dimensions_and_weights(functions: str) -> None:
    model = load(f"{functions}:weighted")
    assert model.shapes == (((("T", 5),), 3.0), ((("T", 24),), 1.0))
    assert model.inputs[0].shape == (384, 8)


def test_what_the_user_says_goes_before_what_the_program_says(functions: str) -> None:
    model = load(f"{functions}:weighted", dims=(("T", (7,)),))
    assert model.shapes == (((("T", 7),), 1.0),)


def test_dimensions_of_a_graph_stay_symbolic(functions: str) -> None:
    model = load(f"{functions}:open_graph", dims=(("n", (1, 6)),))
    assert [(i.shape, i.dims) for i in model.inputs] == [((6, 4), ("n", 4)), ((6, 4), ("n", 4))]
    executable = compile_module(lower(model.module, LLVM), LLVM)
    for rows in (1, 6, 11):
        arrays = make_inputs([i.at({"n": rows}) for i in model.inputs])
        np.testing.assert_array_equal(run_once(executable, arrays)[0], arrays[0] + arrays[1])


def test_dimensions_of_an_onnx_file_keep_their_names(sequence: Path) -> None:
    model = load(sequence, dims=SEQUENCE)
    assert [(i.name, i.shape, i.dims) for i in model.inputs] == [
        ("x", (2, 7, 8), (2, "sequence", 8))
    ]
    assert values(model.shapes) == [(1,), (4,), (7,)]
    tasks = extract(lower(model.module, LLVM), LLVM, shapes=model.shapes)
    assert {values(t.shapes)[-1] for t in tasks} == {(7,)}
    assert all(t.flops > 0 for t in tasks)


def test_an_onnx_file_computes_every_length(sequence: Path) -> None:
    executable = compile_module(lower(load(sequence, dims=SEQUENCE).module, LLVM), LLVM)
    (weight,) = onnx.load(str(sequence)).graph.initializer
    w = numpy_helper.to_array(weight)
    for length in (1, 5, 7, 19):
        x = np.random.default_rng(length).standard_normal((2, length, 8)).astype("float32")
        want = np.maximum(x @ w, 0) + x
        np.testing.assert_allclose(run_once(executable, [x])[0], want, rtol=1e-5, atol=1e-5)


def test_a_shape_fixes_a_dimension_that_could_stay_symbolic(sequence: Path) -> None:
    model = load(sequence, shapes=(("x", (2, 5, 8)),))
    assert (model.inputs[0].shape, model.inputs[0].dims, model.shapes) == ((2, 5, 8), (), ())


def test_symbolic_and_fixed_models_are_other_models(sequence: Path) -> None:
    fixed = load(sequence, shapes=(("x", (2, 7, 8)),)).content_hash
    assert load(sequence, dims=SEQUENCE).content_hash != fixed


@pytest.mark.parametrize("source", ["gemm.py:gemm", "dense.py:dense"])
def test_a_dimension_that_an_example_does_not_have_is_refused(source: str) -> None:
    said = refusal(f"{EXAMPLES}/{source}", dims=(("Q", (1,)),))
    assert said.startswith("--dim Q: no such dimension")


def test_a_dimension_that_a_model_does_not_have_is_refused(sequence: Path, functions: str) -> None:
    dims = (("T", (1,)),)
    assert refusal(sequence, dims=dims) == "--dim T: no such dimension; the model has sequence"
    assert refusal(f"{functions}:open_graph", dims=dims).endswith("the model has n")
    both = (("T", (1,)), ("U", (2,)))
    assert "--dim U: no such dimension" in refusal(f"{functions}:scaled", dims=both)


def test_a_dimension_without_sizes_is_refused(sequence: Path, functions: str) -> None:
    assert "--dim sequence=1..128" in refusal(sequence)
    assert "--dim n=1..128" in refusal(f"{functions}:open_graph")
    assert "--dim T=1..128" in refusal(f"{functions}:bare")


def test_a_dimension_that_follows_from_another_asks_for_that_one(functions: str) -> None:
    assert "(T_x1_m1,8)" in refusal(f"{functions}:shorter")
    assert "--dim T=1..128" in refusal(f"{functions}:shorter")
    model = load(f"{functions}:halved", dims=(("T", (2, 7)),))
    assert [(i.dims, i.shape) for i in model.inputs] == [(("T_x1_d2", 8), (3, 8))] * 2
    (task,) = extract(lower(model.module, LLVM), LLVM, shapes=model.shapes)
    assert values(task.shapes) == [(1,), (3,)]


def test_a_domain_that_makes_a_shape_negative_is_refused(functions: str) -> None:
    model = load(f"{functions}:shorter", dims=(("T", (1, 7)),))
    none = ((("T", 0),), 1.0), ((("T", 7),), 1.0)
    with pytest.raises(TunerError, match=r"^--dim: with T=0 the dimension T_x1_m1 is below 0$"):
        extract(lower(model.module, LLVM), LLVM, shapes=none)


def test_a_dimension_of_its_own_is_explained(functions: str) -> None:
    said = refusal(f"{functions}:square")
    assert said.startswith("input A is dynamic (dim,8); give the sizes to tune for: --dim dim=1..")
    assert said.endswith("; dim is T * T")
    assert refusal(f"{functions}:square", dims=(("T", (1,)),)).endswith("has dim; dim is T * T")
    model = load(f"{functions}:square", dims=(("dim", (4, 9)),))
    assert [i.dims for i in model.inputs] == [("dim", 8), ("dim", 8)]


@pytest.mark.parametrize("dims", [(), (("T", (2, 8)),)])
def test_a_program_that_needs_what_no_shape_tells_is_refused(
    functions: str, dims: tuple[tuple[str, tuple[int, ...]], ...]
) -> None:
    said = refusal(f"{functions}:told_by_halves", dims=dims)
    assert said == (
        "parameter A has the dimension T // 2, and the program needs T, which does not follow from "
        "that: give it a parameter of which T is a dimension"
    )


def test_a_graph_that_needs_what_no_shape_tells_is_refused(functions: str) -> None:
    said = refusal(f"{functions}:graph_of_halves", dims=(("n", (2, 8)),))
    assert said == (
        "input x has the dimension n // 2, and the model needs n, which does not follow from that: "
        "give it an input of which n is a dimension"
    )


def test_a_program_computes_with_a_variable_that_a_shape_tells(functions: str) -> None:
    model = load(f"{functions}:told_by_one_less", dims=(("T", (2, 8)),))
    executable = compile_module(lower(model.module, LLVM), LLVM)
    for size in (1, 2, 6):
        a, b = make_inputs([i.at({"T": size}) for i in model.inputs])
        np.testing.assert_array_equal(run_once(executable, [a, b])[-1], a + np.float32(size))


def test_sizes_of_a_strided_convolution_follow_from_those_of_its_image(functions: str) -> None:
    model = load(f"{functions}:strided")
    assert model.inputs[-1].dims == ("N", 4, "H_x1_m1_d2_p1", "W_x1_m1_d2_p1")
    (task,) = extract(lower(model.module, LLVM), LLVM, shapes=model.shapes)
    assert dict(task.shapes[-1][0])["H_x1_m1_d2_p1"] == 4


def test_a_shape_and_sizes_for_one_dimension_contradict_each_other(sequence: Path) -> None:
    said = refusal(sequence, shapes=(("x", (2, 5, 8)),), dims=SEQUENCE)
    assert said == "--dim sequence: a --shape says already what it is"


def test_weights_of_shapes_come_from_a_file(sequence: Path, tmp_path: Path) -> None:
    (tmp_path / "lengths.json").write_text('{"4": 3, "1": 0.5}')
    model = load(sequence, dims=SEQUENCE, weights=tmp_path / "lengths.json")
    assert model.shapes == (((("sequence", 1),), 0.5), ((("sequence", 4),), 3.0))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"5": 1}', "--weights: no --dim has sequence=5"),
        ('{"4": 0}', "must be above 0"),
        ('{"four": 1}', "'four' is no size of sequence"),
        ("[1, 2]", "--weights: write "),
        ("{", "--weights: not JSON"),
    ],
)
def test_weights_that_do_not_match_are_refused(
    sequence: Path, tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "lengths.json").write_text(text)
    assert says in refusal(sequence, dims=SEQUENCE, weights=tmp_path / "lengths.json")


def test_weights_that_no_dimension_asks_for_are_refused(sequence: Path, tmp_path: Path) -> None:
    assert "--weights: no --dim" in refusal(sequence, weights=tmp_path / "lengths.json")
    said = refusal(sequence, dims=SEQUENCE, weights=tmp_path / "lengths.json")
    assert said.startswith("--weights: cannot read ")


def test_a_functions_own_weights_for_other_shapes_are_refused(functions: str) -> None:
    assert "T=6" in refusal(f"{functions}:strange")


@pytest.mark.parametrize("kind", ["onnx", "graph", "multiple", "program"])
def test_a_copy_keeps_dimensions_and_shapes(
    kind: str, sequence: Path, functions: str, tmp_path: Path
) -> None:
    from tvm_ffi import structural_equal

    model = {
        "onnx": lambda: load(sequence, dims=SEQUENCE),
        "graph": lambda: load(f"{functions}:open_graph", dims=(("n", (1, 6)),)),
        "multiple": lambda: load(f"{EXAMPLES}/dense.py:dense", dims=(("T", (1, 2)),)),
        "program": lambda: load(f"{functions}:weighted"),
    }[kind]()
    save_model_copy(model, tmp_path / "copy")
    sequence.unlink()
    again = load_model_copy(tmp_path / "copy")
    assert structural_equal(again.module, model.module)
    assert (again.name, again.kind, again.inputs, again.shapes, again.content_hash) == (
        model.name,
        model.kind,
        model.inputs,
        model.shapes,
        model.content_hash,
    )
    keys = [
        [t.key for t in extract(lower(m.module, LLVM), LLVM, shapes=m.shapes)]
        for m in (model, again)
    ]
    assert keys[0] == keys[1]
