"""Products by matrices that several heads share: the same numbers, without copies for each head."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, run_once
from spaces.ir import tvm_compat
from spaces.lowering.lower import lower
from spaces.lowering.products.shared_matrices import share_matrices
from spaces.lowering.relax_rewrite import tir_calls

pytestmark = pytest.mark.tvm

TARGET = '{"kind":"llvm","num-cores":1}'
SHARED, EACH, WIDTH = 2, 3, 8
HEADS = SHARED * EACH


def graph(rows: int, keys: int | str, *, flat: bool = False, scale: float = 1.0) -> Any:
    """Attention of exporters: a cache whose heads are copied, turned twice, and scaled.

    Args:
        flat: whether the products are of three dimensions.
    """
    from tvm import relax, tirx
    from tvm.relax import op

    builder = relax.BlockBuilder()
    n = tirx.Var(keys, "int64") if isinstance(keys, str) else keys
    kind = relax.TensorType
    q = relax.Var("q", kind((1, HEADS, rows, WIDTH), "float32"))
    k, v = (relax.Var(name, kind((1, SHARED, n, WIDTH), "float32")) for name in "kv")

    def copy(tensor: Any) -> Any:
        spread = op.broadcast_to(op.expand_dims(tensor, 2), (1, SHARED, EACH, n, WIDTH))
        return emit(op.reshape(emit(spread), (1, HEADS, n, WIDTH)))

    with builder.function("main", [q, k, v]):
        with builder.dataflow():
            emit = builder.emit
            batch = (HEADS,) if flat else (1, HEADS)
            turned = emit(op.permute_dims(emit(op.reshape(copy(k), (HEADS, n, WIDTH))), (0, 2, 1)))
            keyed = emit(op.reshape(turned, (*batch, WIDTH, n)))
            keyed = keyed if scale == 1 else emit(op.multiply(keyed, relax.const(scale)))
            asked = emit(op.reshape(q, (*batch, rows, WIDTH)))
            scores = emit(op.matmul(asked, keyed))
            shares = emit(op.nn.softmax(emit(op.add(scores, relax.const(1.0)))))
            values = emit(op.reshape(copy(v), (*batch, n, WIDTH)))
            found = emit(op.matmul(shares, values))
            result = builder.emit_output(emit(op.reshape(found, (1, HEADS, rows, WIDTH))))
        builder.emit_func_output(result)
    return builder.get()


def attend(q: Any, k: Any, v: Any, scale: float) -> Any:
    k, v = (np.repeat(x, EACH, axis=1) for x in (k, v))
    scores = scale * q @ k.swapaxes(2, 3)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True) @ v


def written_dims(module: Any) -> list[list[str]]:
    return [[*map(str, call.ty_args[0].shape.values)] for call in tir_calls(module)]


def left(module: Any) -> int:
    """How many products have matrices for each head."""
    from tvm.relax.analysis import get_var2val

    return sum(
        tvm_compat.operator_name(value) == "relax.matmul"
        and (tvm_compat.tensor_dims(value.args[1]) or [0])[-3] == HEADS
        for value in get_var2val(module["main"]).values()
    )


@pytest.mark.parametrize(
    ("keys", "flat", "scale"), [(11, False, 1.0), ("n", False, 0.25), (11, True, 0.25)]
)
def test_a_step_copies_no_head(keys: int | str, flat: bool, scale: float) -> None:
    module = graph(1, keys, flat=flat, scale=scale)
    assert (left(module), left(share_matrices(module))) == (2, 0)
    lowered = lower(module, TARGET)
    heads = f"T.int64({EACH})"
    assert not any(len(dims) == 5 or dims[:3:2] == [heads] for dims in written_dims(lowered))
    rng = np.random.default_rng(0)
    shapes = [(1, HEADS, 1, WIDTH), *[(1, SHARED, 11, WIDTH)] * 2]
    inputs = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    (found, *_) = run_once(compile_module(lowered, TARGET), inputs)
    np.testing.assert_allclose(found, attend(*inputs, scale), rtol=1e-5, atol=1e-5)


def test_scores_of_many_rows_stay_where_their_mask_is_added() -> None:
    """Regrouped, they would be written and read once more."""
    assert left(share_matrices(graph(64, 11))) == 1


@pytest.mark.parametrize("axis", [1, 2])
def test_other_copies_stay(axis: int) -> None:
    """Heads that have the same matrix, but not one after the other."""
    from tvm import relax
    from tvm.relax import op

    builder = relax.BlockBuilder()
    q = relax.Var("q", relax.TensorType((1, HEADS, 1, WIDTH), "float32"))
    k = relax.Var("k", relax.TensorType((1, SHARED, WIDTH, WIDTH), "float32"))
    with builder.function("main", [q, k]):
        with builder.dataflow():
            shape = [1, SHARED, WIDTH, WIDTH]
            shape.insert(axis, EACH)
            spread = builder.emit(op.broadcast_to(op.expand_dims(k, axis), shape))
            keyed = builder.emit(op.reshape(spread, (1, HEADS, WIDTH, WIDTH)))
            result = builder.emit_output(op.matmul(q, keyed))
        builder.emit_func_output(result)
    assert left(share_matrices(builder.get())) == (axis == 1)


def test_matrices_that_are_turned_twice_are_turned_once() -> None:
    from tvm import relax
    from tvm.relax import op
    from tvm.relax.analysis import get_var2val

    builder = relax.BlockBuilder()
    q = relax.Var("q", relax.TensorType((1, HEADS, 64, WIDTH), "float32"))
    k = relax.Var("k", relax.TensorType((1, 11, HEADS, WIDTH), "float32"))
    with builder.function("main", [q, k]):
        with builder.dataflow():
            emit = builder.emit
            apart = emit(op.reshape(emit(op.permute_dims(k, (0, 2, 1, 3))), (HEADS, 11, WIDTH)))
            turned = emit(op.permute_dims(apart, (0, 2, 1)))
            keyed = emit(op.reshape(turned, (1, HEADS, WIDTH, 11)))
            result = builder.emit_output(op.matmul(q, keyed))
        builder.emit_func_output(result)
    shared = share_matrices(builder.get())
    reads = [
        value.args[0]
        for value in get_var2val(shared["main"]).values()
        if tvm_compat.read_permutation(value) == (0, 2, 3, 1)
    ]
    assert len(reads) == 1
    assert reads[0].same_as(shared["main"].params[1])
