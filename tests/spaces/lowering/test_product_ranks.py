"""Products take rows as they are, not as matrices: what follows is then fused with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, run_once
from spaces.ir import tvm_compat
from spaces.lowering.lower import lower

pytestmark = pytest.mark.tvm

TARGET = '{"kind":"llvm","num-cores":1}'
RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((8, 12)).astype("float32")
BIAS = RNG.standard_normal(12).astype("float32")


def graph(bias: Any = BIAS, *, turned: bool = False, shown: bool = False) -> Any:
    """As PyTorch has a layer: rows of (2, n, 8) become a matrix, and the result what they were.

    Args:
        turned: whether the result has the first two dimensions exchanged.
        shown: whether the matrix is a result, too.
    """
    from tvm import relax, tirx
    from tvm.relax import op

    builder, n = relax.BlockBuilder(), tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((2, n, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            emit = builder.emit
            flat = emit(op.matmul(emit(op.reshape(x, (2 * n, 8))), relax.const(WEIGHT)))
            if bias is not None:
                flat = emit(op.add(relax.const(bias), flat))
            y = emit(op.nn.relu(emit(op.reshape(flat, (n, 2, 12) if turned else (2, n, 12)))))
            result = builder.emit_output(relax.Tuple([y, flat]) if shown else y)
        builder.emit_func_output(result)
    return builder.get()


def programs(module: Any) -> int:
    return len([*tvm_compat.prim_funcs(module)])


@pytest.mark.parametrize("bias", [None, BIAS, BIAS[None]])
def test_a_layer_is_one_program(bias: Any) -> None:
    lowered = lower(graph(bias), TARGET)
    assert programs(lowered) == 1
    x = RNG.standard_normal((2, 3, 8)).astype("float32")
    (found, *_) = run_once(compile_module(lowered, TARGET), [x])
    wanted = np.maximum(x @ WEIGHT + (0 if bias is None else bias), 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_matrix_that_others_read_stays() -> None:
    assert programs(lower(graph(shown=True), TARGET)) == 2


def test_a_result_of_another_shape_stays() -> None:
    assert programs(lower(graph(turned=True), TARGET)) == 2
