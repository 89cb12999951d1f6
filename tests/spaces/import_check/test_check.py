"""An imported model beside its source: onnxruntime, ONNX's evaluator, PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tvm import relax

from spaces.frontends.model import Model, load_model
from spaces.frontends.onnx import graph
from spaces.import_check import check as check_module
from spaces.import_check import sources
from spaces.import_check.check import check_import
from spaces.import_check.sources import CannotRun, find_left_open, onnx_source
from spaces.targets.target import resolve_target
from tests.spaces.frontends.onnx.beside_onnxruntime import TARGET, parsed
from tests.spaces.frontends.onnx.language_models import llama
from tests.spaces.frontends.onnx.packed_networks import product
from tuner.request.model_spec import ModelSpec
from tuner.runs.import_check import ImportCheck, Limits

pytestmark = pytest.mark.tvm

LIMITS = Limits(60.0, 1 << 40)
CHAIN = """
<ir_version: 8, opset_import: ["": 17]>
chain (float[4, 6] x, float[6, 5] w) => (float[4, 5] y, float[4] s) {
    h = MatMul (x, w)
    r = Relu (h)
    e = Exp (r)
    y = Sub (e, r)
    s = ReduceSum <keepdims = 0> (y, axes)
}
"""
AXES = np.array([1])


def model_of(proto: Any, folder: Path, **said: Any) -> Model:
    path = folder / "model.onnx"
    onnx.save(proto, path)
    return load_model(ModelSpec(str(path), **said))


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has an operator imported as another one."""

    def plant(operator: str, change: Any) -> None:
        right = graph.convert_node

        def converted(node: Any, seen: Any, builder: Any) -> Any:
            if node.op_type != operator:
                return right(node, seen, builder)
            data = seen.input(0).tensor(builder)
            return [builder.normalize(change(data))]

        monkeypatch.setattr(graph, "convert_node", converted)

    return plant


def checked(model: Model, folder: Path | None = None, limits: Limits = LIMITS) -> ImportCheck:
    return check_import(model, TARGET, (), limits, folder)


def test_a_right_import_passes_and_says_beside_what(tmp_path: Path) -> None:
    check = checked(model_of(parsed(CHAIN, axes=AXES), tmp_path))
    assert check.state == "passed"
    assert "onnxruntime" in check.said
    assert check.notes == ()
    assert check.seconds > 0


def test_concatenations_of_concatenations_are_compared_by_right_code(tmp_path: Path) -> None:
    """As of a recurrent network that goes both ways: LLVM's vectors of these read elsewhere."""
    value, helper = onnx.helper.make_tensor_value_info, onnx.helper
    names = [[f"{way}{step}" for step in range(12)] for way in "fb"]
    nodes = [helper.make_node("Concat", each, [each[0][0]], axis=0) for each in names]
    nodes.append(helper.make_node("Concat", ["f", "b"], ["y"], axis=2))
    inputs = [value(name, 1, (1, 2, 24)) for each in names for name in each]
    graph = helper.make_graph(nodes, "both_ways", inputs, [value("y", 1, (12, 2, 48))])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    check = check_import(model_of(proto, tmp_path), resolve_target("llvm"), (), LIMITS)
    assert check.state == "passed", check.said


@pytest.mark.parametrize("target", [TARGET, resolve_target("llvm")])
def test_rows_that_onnxruntime_rounds_may_be_whole(tmp_path: Path, target: str) -> None:
    """Of `MatMulNBits` with `accuracy_level` 4: this CPU may multiply bytes or not."""
    proto, _ = product(4, 32, "packed", columns=48, depth=256, accuracy_level=4)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 6
    check = check_import(model_of(proto, tmp_path), target, (), LIMITS)
    assert check.state == "passed", check.said


@pytest.mark.parametrize(
    ("operator", "node"), [("Relu", "Relu (node of output r)"), ("Exp", "Exp (node of output e)")]
)
def test_a_wrong_one_names_the_output_and_the_node_and_keeps_the_values(
    tmp_path: Path, wrong: Any, operator: str, node: str
) -> None:
    from tvm import relax

    wrong(operator, lambda data: relax.op.multiply(data, relax.const(1.5, "float32")))
    check = checked(model_of(parsed(CHAIN, axes=AXES), tmp_path), tmp_path)
    assert check.state == "differs"
    assert check.said.startswith("output y: largest error")
    assert f"operator {node} is the first that differs" in check.notes
    folder = tmp_path / "import_check"
    given, got, want = (np.load(folder / f"{n}-0.npy") for n in ("input", "got", "want"))
    by_numpy = {"Relu": lambda h: np.maximum(h, 0), "Exp": np.exp}[operator]
    np.testing.assert_allclose(want, by_numpy(given), rtol=1e-5)
    np.testing.assert_allclose(got, given * 1.5, rtol=1e-5)


def test_rounding_that_grows_is_no_fault_and_is_told(tmp_path: Path) -> None:
    """What is nothing but rounding, made large."""
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    grows (float[64] x) => (float[64] y) {
        a = Tanh (x)
        m = Neg (x)
        u = Exp (x)
        v = Exp (m)
        d = Sub (u, v)
        n = Add (u, v)
        b = Div (d, n)
        e = Sub (a, b)
        y = Mul (e, many)
    }
    """
    check = checked(model_of(parsed(text, many=np.float32([1e7])), tmp_path))
    assert check.state == "passed"
    assert "output y: rounding grows in operator Sub (node of output e)" in check.notes


def test_a_shape_that_differs(tmp_path: Path, wrong: Any) -> None:
    from tvm import relax

    wrong("Relu", lambda data: relax.op.reshape(data, (5, 4)))
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    small (float[4, 5] x) => (float[n, m] y) { y = Relu (x) }
    """
    check = checked(model_of(parsed(text), tmp_path))
    assert check.state == "differs"
    assert "its shape is 5,4, and 4,5 in the source" in check.said


def test_open_dimensions_are_compared_at_several_sizes(tmp_path: Path, wrong: Any) -> None:
    """A fault of one size alone is found."""
    from tvm import relax

    text = """
    <ir_version: 8, opset_import: ["": 17]>
    small (float[n, 5] x) => (float[n, 5] y) { y = Relu (x) }
    """
    dims = (("n", (1, 2, 8)),)
    check = checked(model_of(parsed(text), tmp_path, dims=dims))
    assert (check.state, check.said[-11:]) == ("passed", "on 4 inputs")

    def of_eight(data: Any) -> Any:
        rows = data.ty.shape.values[0]
        eight = relax.op.full(relax.ShapeExpr([rows // 8, 5]), relax.const(1.0), "float32")
        rest = relax.op.nn.relu(data)
        return relax.op.add(rest, relax.op.sum(eight))

    wrong("Relu", of_eight)
    check = checked(model_of(parsed(text), tmp_path, dims=dims))
    assert check.state == "differs"


def test_what_is_left_open_is_left_out() -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    small (float[4] x) => (float[4] y, float[4] z) {
        r = RandomNormalLike (x)
        y = Add (x, r)
        z = Neg (x)
    }
    """
    found = find_left_open(parsed(text))
    assert found.nodes == ("RandomNormalLike",)
    assert found.outputs == {0}


def test_what_may_come_in_any_order_is_left_out() -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    small (float[4] x, int64[1] k) => (float[k] v, int64[k] i) {
        v, i = TopK <sorted = 0> (x, k)
    }
    """
    assert find_left_open(parsed(text)).outputs == {0, 1}
    assert not find_left_open(parsed(text.replace("sorted = 0", "sorted = 1"))).outputs


def test_what_is_too_large_says_which_limit_it_was(tmp_path: Path) -> None:
    check = checked(model_of(parsed(CHAIN, axes=AXES), tmp_path), limits=Limits(0.0, 1 << 40))
    assert check.state == "passed"
    assert check.said.endswith("on 1 inputs")
    assert "0 s of processor time were spent" in check.notes[0]


def test_without_onnxruntime_its_own_evaluator_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any) -> Any:
        raise CannotRun("onnxruntime is not installed")

    monkeypatch.setattr(sources, "_Onnxruntime", missing)
    check = checked(model_of(parsed(CHAIN, axes=AXES), tmp_path))
    assert check.state == "passed"
    assert f"onnx {onnx.__version__}" in check.said


def test_integers_that_the_source_refuses_are_drawn_anew(tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    rows (int64[6] i) => (float[6, 3] y) { y = Gather (table, i) }
    """
    check = checked(model_of(parsed(text, table=np.ones((4, 3), np.float32)), tmp_path))
    assert (check.state, check.said[-11:]) == ("passed", "on 2 inputs")


def test_a_program_is_its_own_source() -> None:
    gemm = Path(__file__).parents[3] / "examples" / "gemm.py"
    spec = ModelSpec(f"{gemm}:gemm", args=(("m", 8), ("n", 8), ("k", 8)))
    assert checked(load_model(spec)).state == "own"


@pytest.mark.parametrize(
    ("call", "opset"), [("Erf(x)", 17), ("Softmax<axis = 0>(x)", 11), ("LRN<size = 1>(x)", 17)]
)
def test_what_its_own_evaluator_computes_wrongly_it_is_not_asked(call: str, opset: int) -> None:
    text = f'<ir_version: 8, opset_import: ["": {opset}]> f (double[2, 2] x) => (double[2, 2] y) '
    with pytest.raises(CannotRun, match=r"computes [A-Za-z]* wrongly"):
        sources._Evaluator(parsed(text + f"{{ y = {call} }}"), ["x"])


def test_who_cannot_run_a_model_says_why() -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> f (float[2] x) => (float[2] y) { y = Nope (x) }'
    with pytest.raises(CannotRun, match="Nope"):
        onnx_source(parsed(text), ["x"])


def test_a_source_that_takes_no_drawn_integers_asks_for_usual_ones(tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    rows (int64[6] i, int64[6] other) => (float[6, 3] y, int64[6] z) {
        y = Gather (table, i) z = Identity(other)
    }
    """
    proto = parsed(text, table=np.ones((1, 3), np.float32))
    check = checked(model_of(proto, tmp_path))
    assert check.state == "skipped"
    assert check.said.endswith("name usual values: --input i=int:LO..HI --input other=int:LO..HI")


def test_a_mask_whose_sum_is_a_length_needs_no_values(tmp_path: Path) -> None:
    dims = (("b", (1,)), ("p", (0, 5)), ("s", (1, 4)))
    ties = (("t", "p + s"),)
    check = checked(model_of(llama(1), tmp_path, dims=dims, ties=ties))
    assert (check.state, check.notes) == ("passed", ())


BYTES = """
<ir_version: 8, opset_import: ["": 17]>
bytes_ (float[40] x) => (float[40] y) {
    q, s, z = DynamicQuantizeLinear (x)
    r = DequantizeLinear (q, s, z)
    y = Relu (r)
}
"""


def test_a_fault_in_a_graph_that_rounds_to_bytes_is_found(wrong: Any, tmp_path: Path) -> None:
    wrong("Relu", lambda data: data)
    check = checked(model_of(parsed(BYTES), tmp_path))
    assert check.state == "differs"
    assert any("Relu" in note for note in check.notes)


TIES = """
<ir_version: 8, opset_import: ["": 17]>
ties (float[40] x) => (float[40] y) {
    tens = Mul (x, ten)
    whole = Floor (tens)
    tie = Add (whole, half)
    r = Relu (tie)
    q = QuantizeLinear (r, one)
    d = DequantizeLinear (q, one)
    y = Sub (d, r)
}
"""
NUMBERS = {"ten": np.float32(10), "half": np.float32(0.5), "one": np.float32(1)}


def test_bytes_next_to_ties_are_not_wrong_whatever_grows_from_them(
    wrong: Any, tmp_path: Path
) -> None:
    wrong("Relu", lambda data: relax.op.multiply(relax.op.nn.relu(data), factor(1 + 2.0**-20)))
    check = checked(model_of(parsed(TIES, **NUMBERS), tmp_path))
    assert check.state == "passed"
    assert any("output y: rounding grows" in note for note in check.notes)


def test_bytes_that_differ_by_more_than_a_tie_are_wrong(wrong: Any, tmp_path: Path) -> None:
    wrong("Relu", lambda data: relax.op.multiply(relax.op.nn.relu(data), factor(1.5)))
    check = checked(model_of(parsed(TIES, **NUMBERS), tmp_path))
    assert check.state == "differs"
    assert any("Relu" in note for note in check.notes)


def test_what_outputs_hide_between_bytes_is_found(wrong: Any, tmp_path: Path) -> None:
    """A byte that is two steps off moves the output by less than a tie may in a deep network."""
    wrong("Relu", lambda data: relax.op.add(relax.op.nn.relu(data), factor(1.75)))
    text = TIES.replace("y = Sub (d, r)", "y = Add (d, thousand)")
    check = checked(model_of(parsed(text, thousand=np.float32(1000), **NUMBERS), tmp_path))
    assert check.state == "differs"
    assert any("Relu" in note for note in check.notes)


def test_a_difference_between_bytes_is_told_where_no_time_is_left_for_its_node(
    wrong: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong("Floor", lambda data: data)
    monkeypatch.setattr(check_module, "_LOCATE_S", 0.0)
    check = checked(model_of(parsed(TIES, **NUMBERS), tmp_path))
    assert check.state == "differs"
    assert any("what leads to operator" in note for note in check.notes)


def factor(number: float) -> Any:
    return relax.const(number, "float32")
