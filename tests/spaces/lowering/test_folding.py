"""Constants computed with NumPy are those that TVM computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spaces.ir import tvm_compat
from spaces.lowering.folding import fold
from spaces.lowering.lower import lower
from spaces.lowering.relax_rewrite import straight_bindings, tir_calls

pytestmark = pytest.mark.tvm

RNG = np.random.default_rng(0)
A = (RNG.random((3, 4)) + 0.5).astype("float32")
B = (RNG.random((4,)) + 0.5).astype("float32")

CASES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda op, a, b: op.add(a, b),
    "subtract": lambda op, a, b: op.subtract(a, b),
    "multiply": lambda op, a, b: op.multiply(a, b),
    "divide": lambda op, a, b: op.divide(a, b),
    "sqrt": lambda op, a, b: op.sqrt(a),
    "rsqrt": lambda op, a, b: op.rsqrt(b),
    "negative": lambda op, a, b: op.negative(a),
    "expand_dims": lambda op, a, b: op.expand_dims(b, [0, -1]),
    "permute_dims": lambda op, a, b: op.permute_dims(a),
    "permute_dims by axes": lambda op, a, b: op.permute_dims(a, [1, 0]),
    "reshape": lambda op, a, b: op.reshape(a, (2, 6)),
    "squeeze": lambda op, a, b: op.squeeze(op.expand_dims(a, [0])),
}


def graph(build: Callable[[Any, Any, Any], Any], dtype: str = "float32") -> Any:
    """The sum of an input's element and what is built of two constants."""
    import tvm
    from tvm import relax

    a, b = (relax.const(array.astype(dtype), dtype) for array in (A, B))
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit(builder.normalize(build(relax.op, a, b)))
            out = builder.emit_output(relax.op.add(x, made))
        builder.emit_func_output(out)
    module: tvm.IRModule = builder.get()
    return module


def operators(module: Any) -> list[str]:
    found = [tvm_compat.operator_name(b.value) for b in straight_bindings(module["main"]) or ()]
    return [name for name in found if name]


def value(module: Any) -> Any:
    """The constant that is added to the input."""
    calls = [b.value for b in straight_bindings(module["main"]) or ()]
    (added,) = [c.args[1] for c in calls if tvm_compat.operator_name(c) == "relax.add"]
    return added.value.numpy()


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_an_operator_gives_what_tvm_gives(name: str, dtype: str) -> None:
    from tvm.relax import transform

    module = graph(CASES[name], dtype)
    ours, theirs = fold(module), transform.FoldConstant()(module)
    assert operators(ours) == ["relax.add"]
    assert value(ours).dtype == value(theirs).dtype
    np.testing.assert_allclose(value(ours), value(theirs), rtol=2 * np.finfo(dtype).eps)
    assert value(ours).shape == value(theirs).shape


@pytest.mark.parametrize("exclusive", [False, True])
def test_running_sums_are_folded_which_tvm_leaves_to_each_run(exclusive: bool) -> None:
    """As PyTorch's exporter has them for sequences of known length: of numbers that are known when
    ranges are."""

    def build(op: Any, a: Any, b: Any) -> Any:
        return op.cumsum(op.add(op.arange(0, 4, 1, "int64"), a), 1, exclusive=exclusive)

    lowered = lower(graph(build, "int64"), '{"kind":"llvm","num-cores":1}')
    (call,) = tir_calls(lowered)
    (found,) = [arg.value.numpy() for arg in call.args[1].fields if tvm_compat.is_constant(arg)]
    numbers = np.arange(4) + A.astype("int64")
    assert found.tolist() == (numbers.cumsum(1) - exclusive * numbers).tolist()


def test_chains_are_folded_whole_and_what_has_an_input_stays() -> None:
    module = graph(lambda op, a, b: op.multiply(op.add(a, b), op.sqrt(op.negative(op.negative(b)))))
    assert operators(fold(module)) == ["relax.add"]


def test_what_is_not_in_the_table_is_left_to_tvm() -> None:
    module = graph(lambda op, a, b: op.erf(op.add(a, b)))
    assert operators(fold(module)) == ["relax.erf", "relax.add"]


def test_integers_are_left_to_tvm() -> None:
    module = graph(lambda op, a, b: op.divide(a, b), "int32")
    assert operators(fold(module))[0] == "relax.divide"


def test_a_graph_without_constants_is_the_same_object() -> None:
    from tvm import relax

    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.add(x, x))
        builder.emit_func_output(out)
    module = builder.get()
    assert fold(module)["main"].same_as(module["main"])
