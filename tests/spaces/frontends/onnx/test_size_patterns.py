"""Graphs that calculate shapes, as exporters write them: imported with one symbol, right at each of
its values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper, numpy_helper

from spaces.codegen.executable import compile_plainly
from spaces.frontends.inputs import InputSpec
from spaces.frontends.onnx.graph import graph_module
from spaces.ir.symbolic import text_of
from spaces.ir.tvm_compat import as_int
from spaces.lowering.lower import lower
from spaces.lowering.plain_shapes import with_plain_inputs
from tests.spaces.frontends.onnx.beside_onnxruntime import refusal
from tuner.errors import TunerError

pytestmark = pytest.mark.tvm

TARGET = '{"kind":"llvm","num-cores":1}'
Nodes = Sequence[Any]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
OPSET = 17


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """Of names with spaces between; `_` is an operand that is left out."""
    names = ["" if name == "_" else name for name in inputs.split()]
    return helper.make_node(operator, names, outputs.split(), **attributes)


def graph(
    nodes: Nodes, dims: Sequence[int | str], dtype: int = FLOAT, **constants: Any
) -> tuple[Any, InputSpec]:
    """A model of one input x and one output y; constants are integers in int64, lists of them, or
    arrays."""
    arrays = {
        name: value if isinstance(value, np.ndarray) else np.array(value, dtype="int64")
        for name, value in constants.items()
    }
    proto = helper.make_model(
        helper.make_graph(
            list(nodes),
            "patterns",
            [helper.make_tensor_value_info("x", dtype, list(dims))],
            [helper.make_empty_tensor_value_info("y")],
            [numpy_helper.from_array(array, name) for name, array in arrays.items()],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=8,
    )
    numpy_type = str(np.dtype(helper.tensor_dtype_to_np_dtype(dtype)))
    return proto, InputSpec("x", (0,) * len(dims), numpy_type, tuple(dims))


def imported(proto: Any, spec: InputSpec) -> Any:
    module, _ = graph_module(proto, [spec])
    return with_plain_inputs(module)


def machine_of(proto: Any, spec: InputSpec) -> Any:
    import tvm

    lowered = lower(imported(proto, spec), TARGET)
    return tvm.relax.VirtualMachine(compile_plainly(lowered, TARGET).library, tvm.cpu())


def compare(proto: Any, spec: InputSpec, sizes: Sequence[int]) -> None:
    """See that a model gives what onnxruntime gives, for each size of its dimensions."""
    import onnxruntime
    import tvm

    machine = machine_of(proto, spec)
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    peer = onnxruntime.InferenceSession(proto.SerializeToString(), quiet)
    for size in sizes:
        shape = [d if isinstance(d, int) else size for d in spec.dims]
        array = given(shape, spec.dtype)
        (wanted,) = peer.run(None, {"x": array})
        found = machine["main"](tvm.runtime.tensor(array)).numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=f"N={size}")


def given(shape: Sequence[int], dtype: str) -> npt.NDArray[Any]:
    rng = np.random.default_rng(0)
    if dtype.startswith("float"):
        return rng.normal(size=shape).astype(dtype)
    return rng.integers(0, 5, shape).astype(dtype)


SHAPE = node("Shape", "x", "shape")
LENGTH = [SHAPE, node("Gather", "shape one", "n", axis=0)]
"""The length as a scalar; `one` is the number of the axis."""


def positions() -> tuple[Any, InputSpec]:
    """Rows of a table by their number."""
    table = np.random.default_rng(1).normal(size=(40, 8)).astype("float32")
    nodes = [
        *LENGTH,
        node("Range", "zero n step", "rows"),
        node("Gather", "table rows", "found"),
        node("Add", "x found", "y"),
    ]
    return graph(nodes, [1, "N", 8], table=table, one=1, zero=0, step=1)


def heads() -> tuple[Any, InputSpec]:
    """Split into heads by a shape that is put together, and back by -1."""
    nodes = [
        *LENGTH,
        node("Unsqueeze", "n axis0", "n1"),
        node("Concat", "first n1 last", "split", axis=0),
        node("Reshape", "x split", "parts"),
        node("Transpose", "parts", "heads", perm=[0, 2, 1, 3]),
        node("Transpose", "heads", "back", perm=[0, 2, 1, 3]),
        node("Reshape", "back whole", "y"),
    ]
    return graph(nodes, [1, "N", 8], one=1, axis0=[0], first=[1], last=[2, 4], whole=[0, -1, 8])


def expanded() -> tuple[Any, InputSpec]:
    """`expand` with -1, as the tracing exporter writes it."""
    nodes = [
        *LENGTH,
        node("Unsqueeze", "n axis0", "n1"),
        node("Concat", "minus n1 eight", "asked", axis=0),
        node("Shape", "asked", "rank"),
        node("ConstantOfShape", "rank", "ones", value=helper.make_tensor("v", INT64, [1], [1])),
        node("Mul", "ones minus_one", "minuses"),
        node("Equal", "asked minuses", "kept"),
        node("Where", "kept ones asked", "wanted"),
        node("Slice", "x zeros ones1 axis1", "row"),
        node("Expand", "row wanted", "tall"),
        node("Add", "x tall", "y"),
    ]
    return graph(
        nodes, [1, "N", 8], one=1, axis0=[0], minus=[-1], minus_one=-1, eight=[8],
        zeros=[0], ones1=[1], axis1=[1],
    )  # fmt: skip


def causal_mask() -> tuple[Any, InputSpec]:
    """Which columns lie before a row."""
    nodes = [
        *LENGTH,
        node("Range", "zero n step", "places"),
        node("Unsqueeze", "places axis1", "rows"),
        node("LessOrEqual", "places rows", "seen"),
        node("Where", "seen x low", "masked"),
        node("Softmax", "masked", "y", axis=-1),
    ]
    low = np.array(-1e4, dtype="float32")
    return graph(nodes, [2, "N", "N"], one=1, zero=0, step=1, axis1=[1], low=low)


def last_row() -> tuple[Any, InputSpec]:
    nodes = [node("Slice", "x minus end axis", "y")]
    return graph(nodes, [2, "N", 3], minus=[-1], end=[(1 << 63) - 1], axis=[1])


def second_half() -> tuple[Any, InputSpec]:
    """A slice whose begin is calculated."""
    nodes = [
        *LENGTH,
        node("Div", "n two", "half"),
        node("Unsqueeze", "half axis0", "begin"),
        node("Unsqueeze", "n axis0", "end"),
        node("Slice", "x begin end axis1", "y"),
    ]
    return graph(nodes, [2, "N", 3], one=1, two=2, axis0=[0], axis1=[1])


def every_other() -> tuple[Any, InputSpec]:
    nodes = [node("Slice", "x zero end axis step", "y")]
    return graph(nodes, [2, "N", 3], zero=[0], end=[(1 << 31) - 1], axis=[1], step=[2])


def repeated() -> tuple[Any, InputSpec]:
    """Tiled as often as it is long."""
    nodes = [
        *LENGTH,
        node("Unsqueeze", "n axis0", "n1"),
        node("Concat", "two n1 one1", "times", axis=0),
        node("Tile", "x times", "y"),
    ]
    return graph(nodes, [1, "N", 3], one=1, axis0=[0], two=[2], one1=[1])


def flattened() -> tuple[Any, InputSpec]:
    """By the product of its dimensions, and by twice as many rows of half the length."""
    nodes = [
        SHAPE,
        node("Slice", "shape zero1 two1", "rows"),
        node("ReduceProd", "rows", "count", keepdims=1),
        node("Concat", "count minus", "flat", axis=0),
        node("Reshape", "x flat", "matrix"),
        node("Reshape", "matrix halves", "y"),
    ]
    return graph(nodes, [2, "N", 6], zero1=[0], two1=[2], minus=[-1], halves=[-1, 3])


def taken_branch() -> tuple[Any, InputSpec]:
    """A branch whose condition is a rank."""
    yes = helper.make_graph([node("Relu", "x", "a")], "yes", [], [empty("a")])
    no = helper.make_graph([node("Neg", "x", "b")], "no", [], [empty("b")])
    nodes = [
        SHAPE,
        node("Size", "shape", "rank"),
        node("Equal", "rank three", "is_three"),
        node("If", "is_three", "y", then_branch=yes, else_branch=no),
    ]
    return graph(nodes, [2, "N", 6], three=3)


def empty(name: str) -> Any:
    return helper.make_empty_tensor_value_info(name)


def enlarged(**attributes: Any) -> Callable[[], tuple[Any, InputSpec]]:
    def make() -> tuple[Any, InputSpec]:
        scales = np.array([1, 1, 2, 3], dtype="float32")
        nodes = [node("Resize", "x _ scales", "y", **attributes)]
        return graph(nodes, [1, 2, "N", "N"], scales=scales)

    return make


def resized_like() -> tuple[Any, InputSpec]:
    """Made smaller, and as large as it was by its shape."""
    nodes = [
        node("MaxPool", "x", "small", kernel_shape=[2, 2], strides=[2, 2]),
        SHAPE,
        node("Resize", "small _ _ shape", "large", mode="nearest",
             coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        node("Add", "x large", "y"),
    ]  # fmt: skip
    return graph(nodes, [1, 2, "N", "N"])


PATTERNS: dict[str, Callable[[], tuple[Any, InputSpec]]] = {
    "rows of a table": positions,
    "heads": heads,
    "expand with -1": expanded,
    "a causal mask": causal_mask,
    "the last row": last_row,
    "the second half": second_half,
    "every other row": every_other,
    "tiled": repeated,
    "flattened": flattened,
    "a branch that is known": taken_branch,
    "linear": enlarged(mode="linear", coordinate_transformation_mode="half_pixel"),
    "nearest": enlarged(
        mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    ),
    "resized by a shape": resized_like,
}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_is_right_at_every_size(name: str) -> None:
    compare(*PATTERNS[name](), sizes=(2, 3, 4, 7, 16, 31))


@pytest.mark.parametrize("name", ["heads", "flattened", "expand with -1", "tiled"])
def test_no_shape_is_left_to_be_calculated_at_run_time(name: str) -> None:
    text = imported(*PATTERNS[name]()).script()
    assert "shape_of" not in text
    assert "tensor_to_shape" not in text


def test_a_result_has_a_shape_in_the_models_symbol() -> None:
    module = imported(*second_half())
    first, rows, last = module["main"].ret_ty.shape.values
    assert (as_int(first), text_of(rows), as_int(last)) == (2, "N - N // 2", 3)


def test_a_size_that_is_data_is_calculated_when_the_model_runs() -> None:
    """A length as a factor."""
    nodes = [*LENGTH, node("Cast", "n", "f", to=FLOAT), node("Div", "x f", "y")]
    compare(*graph(nodes, [2, "N"], one=1), sizes=(1, 4, 9))


def test_what_would_read_beyond_its_end_ends_with_an_error() -> None:
    import tvm

    table = np.ones((1, 8), dtype="float32")
    nodes = [
        *LENGTH,
        node("Unsqueeze", "n axis0", "n1"),
        node("Slice", "table zero n1 one1", "part"),
        node("Add", "x part", "y"),
    ]
    proto, spec = graph(nodes, [1, "N"], table=table, one=1, axis0=[0], zero=[0], one1=[1])
    compare(proto, spec, sizes=(1, 7, 8))
    machine = machine_of(proto, spec)
    with pytest.raises(Exception, match=r"1 vs\. 0"):
        machine["main"](tvm.runtime.tensor(np.ones((1, 9), dtype="float32")))


def test_rows_that_a_table_does_not_have_end_with_an_error() -> None:
    import tvm

    machine = machine_of(*positions())
    assert machine["main"](tvm.runtime.tensor(np.ones((1, 40, 8), dtype="float32"))) is not None
    with pytest.raises(Exception, match=r"3 vs\. 0"):
        machine["main"](tvm.runtime.tensor(np.ones((1, 43, 8), dtype="float32")))


def test_a_shape_of_another_size_is_refused_and_nothing_is_read_beyond() -> None:
    """An exporter that takes the example's size for a constant writes such."""
    import tvm

    nodes = [node("Reshape", "x shape", "y")]
    proto, spec = graph(nodes, [2, "N"], shape=[4, 3])
    compare(proto, spec, sizes=(6,))
    machine = machine_of(proto, spec)
    for number in (5, 7):
        with pytest.raises(Exception, match=r"2 vs\. 0"):
            machine["main"](tvm.runtime.tensor(np.ones((2, number), dtype="float32")))
    said = refusal(proto)
    assert "with N=1, operator Reshape (node of output y) has 10 elements too few" in said


def test_a_branch_that_data_decides_is_refused_in_one_line() -> None:
    yes = helper.make_graph([node("Relu", "x", "a")], "yes", [], [empty("a")])
    no = helper.make_graph([node("Neg", "x", "b")], "no", [], [empty("b")])
    nodes = [
        node("ReduceSum", "x", "sum", keepdims=0),
        node("Cast", "sum", "condition", to=TensorProto.BOOL),
        helper.make_node("If", ["condition"], ["y"], "branch", then_branch=yes, else_branch=no),
    ]
    with pytest.raises(TunerError, match=r"operator If \(node branch\): which branch") as caught:
        imported(*graph(nodes, [2, "N"]))
    assert "\n" not in str(caught.value)


def test_an_operand_that_nothing_computes_is_named() -> None:
    with pytest.raises(TunerError, match=r"operator Add \(node of output y\).* its input z"):
        imported(*graph([node("Add", "x z", "y")], [2, "N"]))
