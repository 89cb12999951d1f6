"""Reading models: ONNX files, functions, archives; and every way they can be broken."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from spaces.frontends.model import Model, load_model
from spaces.frontends.model_copy import load_input_values, load_model_copy, save_model_copy
from tests.needed import needed_package
from tuner.errors import TunerError
from tuner.request.model_spec import InputArray, IntRange, ModelSpec

pytestmark = pytest.mark.tvm

EXAMPLES = Path(__file__).parents[3] / "examples"


def write_onnx(path: Path, nodes: list[Any], *, dims: list[Any], **save: Any) -> Path:
    """A model with inputs x and y of some shape, weights w = 1, and the output `out`."""
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n in ("x", "y")]
    weight = numpy_helper.from_array(np.ones((4, 4), "float32"), "w")
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", tensors, [out], [weight])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save_model(model, str(path), **save)
    return path


SUM = [
    helper.make_node("MatMul", ["x", "w"], ["xw"], name="product"),
    helper.make_node("Sum", ["xw", "y", "x"], ["out"], name="total"),
]


def load(path: Path, **spec: Any) -> Model:
    return load_model(ModelSpec(str(path), **spec))


def refusal(source: str | Path, **spec: Any) -> str:
    with pytest.raises(TunerError) as refused:
        load_model(ModelSpec(str(source), **spec))
    assert refused.value.exit_code == 1
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_an_onnx_file_gives_a_module_and_its_inputs(tmp_path: Path) -> None:
    model = load(write_onnx(tmp_path / "net.onnx", SUM, dims=[2, 4]))
    assert (model.name, model.kind) == ("net", "onnx")
    assert [(i.name, i.shape, i.dtype) for i in model.inputs] == [
        ("x", (2, 4), "float32"),
        ("y", (2, 4), "float32"),
    ]
    assert len(model.module["main"].params) == 2


def test_importing_says_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    path = write_onnx(tmp_path / "net.onnx", SUM, dims=[2, 4])
    capfd.readouterr()
    load(path)
    assert tuple(capfd.readouterr()) == ("", "")
    assert not recwarn.list


def test_a_sum_becomes_additions_that_can_be_fused(tmp_path: Path) -> None:
    text = load(write_onnx(tmp_path / "net.onnx", SUM, dims=[2, 4])).module.script()
    assert text.count("R.add") == 2
    assert "stack" not in text


def test_symbolic_dimensions_need_a_shape_once_for_each_name(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "net.onnx", SUM, dims=["batch", 4])
    assert "--shape x=?,4" in refusal(path)
    model = load(path, shapes=(("x", (8, 4)),))
    assert [i.shape for i in model.inputs] == [(8, 4), (8, 4)]
    assert load(path, shapes=(("x", (3, 4)),)).content_hash != model.content_hash


def test_shapes_that_contradict_the_model_are_refused(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "net.onnx", SUM, dims=["batch", 4])
    assert "no such input; the model has x, y" in refusal(path, shapes=(("z", (1, 4)),))
    assert "2 dimensions, but --shape gives 1" in refusal(path, shapes=(("x", (4,)),))
    assert "dimension 1 is 4" in refusal(path, shapes=(("x", (1, 5)),))
    assert "--input z" in refusal(path, shapes=(("x", (1, 4)),), inputs=(("z", IntRange(0, 1)),))


def test_missing_and_broken_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("this is not a model")
    (tmp_path / "empty.onnx").write_bytes(b"")
    assert "no such file" in refusal(tmp_path / "missing.onnx")
    assert "not a readable ONNX model" in refusal(tmp_path / "text.onnx")
    assert "holds no graph" in refusal(tmp_path / "empty.onnx")
    assert "not a model" in refusal(tmp_path / "net.txt")


def test_an_unknown_operator_is_named_with_its_node(tmp_path: Path) -> None:
    odd = helper.make_node("Frobnicate", ["x"], ["out"], name="odd one", domain="acme")
    path = write_onnx(tmp_path / "net.onnx", [odd], dims=[2, 4])
    assert "acme.Frobnicate (node odd one)" in refusal(path)


def test_an_operator_that_fails_to_import_is_named_with_its_node(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pad = helper.make_node("Pad", ["x", "pads"], ["out"], name="padding", mode="wrap")
    cast = helper.make_node("Cast", ["y"], ["flat"], to=TensorProto.INT64)
    shape = helper.make_node("ReduceMax", ["flat"], ["pads"], keepdims=0, axes=[0])
    path = write_onnx(tmp_path / "net.onnx", [cast, shape, pad], dims=[4, 4])
    said = refusal(path)
    assert "Pad" in said
    assert "padding" in said
    assert capfd.readouterr().out == ""


def test_external_data_is_read_and_counts_in_the_hash(tmp_path: Path) -> None:
    plain = load(write_onnx(tmp_path / "net.onnx", SUM, dims=[2, 4]))
    outside = write_onnx(
        tmp_path / "out.onnx",
        SUM,
        dims=[2, 4],
        save_as_external_data=True,
        location="weights",
        size_threshold=0,
    )
    model = load(outside)
    assert model.content_hash != plain.content_hash
    data = bytearray((tmp_path / "weights").read_bytes())
    data[0] ^= 1
    (tmp_path / "weights").write_bytes(bytes(data))
    assert load(outside).content_hash != model.content_hash
    (tmp_path / "weights").unlink()
    assert "out.onnx" in refusal(outside)


def test_a_function_is_called_with_converted_arguments() -> None:
    model = load_model(
        ModelSpec(f"{EXAMPLES}/gemm.py:gemm", args=(("m", "16"), ("k", 8.0), ("n", 4)))
    )
    assert (model.name, model.kind, model.path) == ("gemm", "function", None)
    assert [i.shape for i in model.inputs] == [(16, 8), (8, 4), (16, 4)]


def test_the_same_function_has_the_same_hash_and_arguments_change_it() -> None:
    hashes = [
        load_model(ModelSpec(f"{EXAMPLES}/gemm.py:gemm", args=(("m", m),))).content_hash
        for m in (16, 16, 32)
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_module_can_be_named_instead_of_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_models.py").write_text((EXAMPLES / "gemm.py").read_text())
    monkeypatch.chdir(tmp_path)
    try:
        assert load_model(ModelSpec("my_models:gemm")).inputs[0].name == "A"
    finally:
        sys.modules.pop("my_models", None)


def test_a_files_own_folder_can_be_imported_from(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text((EXAMPLES / "gemm.py").read_text())
    (tmp_path / "model.py").write_text("from beside_it import gemm\n")
    try:
        assert load_model(ModelSpec(f"{tmp_path / 'model.py'}:gemm")).inputs[0].name == "A"
    finally:
        sys.modules.pop("beside_it", None)


BROKEN = """
def number(): return 7
def boom(size: int): raise RuntimeError("first\\nsecond")
def leave(): raise SystemExit("bye")
def rows(T: "tuner.ShapeVar"): return T
"""


@pytest.mark.parametrize(
    ("function", "args", "says"),
    [
        ("number", (), "gave int, but an IRModule or a PrimFunc is needed"),
        ("number", (("m", 1),), "--arg m: .* it takes none"),
        ("boom", (), "needs more arguments: --arg size="),
        ("boom", (("size", "big"),), "--arg size=big: not of type int"),
        ("boom", (("size", 1.5),), "--arg size=1.5: not of type int"),
        ("boom", (("size", 1),), "failed: RuntimeError: first"),
        ("leave", (), "failed: SystemExit: bye"),
        ("rows", (("T", 5),), "--arg T=5: it is a dimension .* to tune for, --dim T=1..64"),
        ("rows", (), "needs more arguments: --dim T=1..64"),
        ("nothing", (), "has no function nothing; it has number, boom, leave, rows"),
    ],
)
def test_functions_that_give_no_model_are_refused(
    tmp_path: Path, function: str, args: tuple[Any, ...], says: str
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    with pytest.raises(TunerError, match=says) as refused:
        load_model(ModelSpec(f"{tmp_path}/broken.py:{function}", args=args))
    assert "\n" not in str(refused.value)


def test_a_program_without_elements_is_refused() -> None:
    with pytest.raises(TunerError, match="input A has no elements"):
        load_model(ModelSpec(f"{EXAMPLES}/gemm.py:gemm", args=(("m", 0),)))


def test_values_of_inputs_are_looked_at_when_the_model_is_read(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "net.onnx", SUM, dims=[2, 4])
    np.save(tmp_path / "small.npy", np.zeros((1, 2), "float32"))
    np.save(tmp_path / "right.npy", np.zeros((2, 4), "float32"))
    load_model(ModelSpec(str(path), inputs=(("x", tmp_path / "right.npy"),)))
    for value, says in (
        (tmp_path / "missing.npy", "cannot read .*missing.npy"),
        (tmp_path / "small.npy", "holds float32 1,2, but the model takes float32 2,4"),
        (IntRange(0, 3), "it holds float32, not integers"),
    ):
        with pytest.raises(TunerError, match=says):
            load_model(ModelSpec(str(path), inputs=(("x", value),)))


def test_a_value_that_nothing_computes_is_named(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["nowhere"], ["out"], name="first")
    said = refusal(write_onnx(tmp_path / "net.onnx", [node], dims=[2, 4]))
    assert "node first): nothing computes its input nowhere" in said


def test_files_and_modules_that_do_not_load_are_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import there_is_no_such_module")
    assert "there_is_no_such_module" in refusal(f"{tmp_path}/broken.py:f")
    assert "no such file" in refusal(f"{tmp_path}/missing.py:f")
    assert "cannot be imported" in refusal("there_is_no_such_module:f")


def test_symbolic_dimensions_of_a_graph_are_bound_by_shapes(tmp_path: Path) -> None:
    (tmp_path / "open.py").write_text(
        "from tvm import relax, tirx\n"
        "def net():\n"
        "    n = tirx.Var('n', 'int64')\n"
        "    x, y = (relax.Var(v, relax.TensorType((n, 4), 'float32')) for v in 'xy')\n"
        "    b = relax.BlockBuilder()\n"
        "    with b.function('main', [x, y]):\n"
        "        b.emit_func_output(b.emit(relax.op.add(x, y)))\n"
        "    return b.get()\n"
    )
    source = f"{tmp_path}/open.py:net"
    assert "--shape x=?,4" in refusal(source)
    model = load_model(ModelSpec(source, shapes=(("x", (6, 4)),)))
    assert [i.shape for i in model.inputs] == [(6, 4), (6, 4)]
    assert "n" not in [str(d) for d in model.module["main"].params[0].ty.shape.values]


def test_without_pytorch_an_archive_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.pt2").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "elastic-tuner[torch]" in refusal(tmp_path / "net.pt2")
    assert "no such file" in refusal(tmp_path / "missing.pt2")


def test_a_pytorch_archive_is_imported(tmp_path: Path) -> None:
    torch = needed_package("torch")
    program = torch.export.export(torch.nn.Linear(4, 2), (torch.ones(3, 4),))
    torch.export.save(program, tmp_path / "net.pt2")
    model = load(tmp_path / "net.pt2")
    assert [i.shape for i in model.inputs] == [(3, 4)]


@pytest.mark.parametrize("external", [False, True])
def test_a_copy_outlives_its_original(tmp_path: Path, external: bool) -> None:
    from tvm_ffi import structural_equal

    save = {"save_as_external_data": True, "location": "w", "size_threshold": 0}
    original = tmp_path / "model"
    original.mkdir()
    path = write_onnx(original / "net.onnx", SUM, dims=["batch", 4], **(save if external else {}))
    np.save(original / "y.npy", np.ones((8, 4), "float32"))
    model = load(path, shapes=(("x", (8, 4)),))
    held = InputArray((original / "y.npy").read_bytes())
    values = (("x", IntRange(0, 3)), ("y", held if external else original / "y.npy"))
    save_model_copy(model, tmp_path / "copy", inputs=values)
    for file in original.iterdir():
        file.unlink()
    again = load_model_copy(tmp_path / "copy")
    assert structural_equal(again.module, model.module)
    assert (again.name, again.inputs, again.content_hash) == (
        model.name,
        model.inputs,
        model.content_hash,
    )
    (x, low_high), (y, file) = load_input_values(tmp_path / "copy")
    assert (x, low_high, y) == ("x", IntRange(0, 3), "y")
    assert isinstance(file, Path)
    assert np.load(file).shape == (8, 4)


def test_a_function_is_copied_as_the_module_it_gave(tmp_path: Path) -> None:
    from tvm_ffi import structural_equal

    model = load_model(ModelSpec(f"{EXAMPLES}/dense.py:dense"))
    save_model_copy(model, tmp_path)
    assert structural_equal(load_model_copy(tmp_path).module, model.module)


def test_a_folder_without_a_copy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TunerError, match="no readable copy"):
        load_model_copy(tmp_path)
    (tmp_path / "model.json").write_text('{"format": 99}')
    with pytest.raises(TunerError, match="another version"):
        load_model_copy(tmp_path)
