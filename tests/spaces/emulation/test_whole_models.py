"""Whole models run in the Relax virtual machine, their kernels on the emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, run_once
from tests.spaces.emulation.samples import AMPERE

pytestmark = pytest.mark.tvm
_ROWS, _DEPTH, _HIDDEN, _CLASSES = 7, 33, 45, 10


def network(weights: tuple[Any, Any]) -> Any:
    """Two products, a ReLU between them, a change of shape that costs nothing, and a softmax."""
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((_ROWS, 3, _DEPTH // 3), "float32"))
    first, second = map(relax.const, weights)
    with builder.function("main", [x]):
        with builder.dataflow():
            square = builder.emit(relax.op.nn.relu(x))
            flat = builder.emit(relax.op.reshape(square, (_ROWS, _DEPTH)))
            hidden = builder.emit(relax.op.nn.relu(relax.op.matmul(flat, first)))
            last = relax.op.nn.softmax(relax.op.matmul(hidden, second), axis=-1)
            output = builder.emit_output(last)
        builder.emit_func_output(output)
    return builder.get()


def test_a_network_is_right_on_the_emulated_device() -> None:
    rng = np.random.default_rng(0)
    first = rng.standard_normal((_DEPTH, _HIDDEN)).astype("float32")
    second = rng.standard_normal((_HIDDEN, _CLASSES)).astype("float32")
    x = rng.standard_normal((_ROWS, 3, _DEPTH // 3)).astype("float32")
    (got,) = run_once(compile_module(network((first, second)), AMPERE), [x])
    last = np.maximum(np.maximum(x, 0).reshape(_ROWS, _DEPTH) @ first, 0) @ second
    powers = np.exp(last - last.max(1, keepdims=True))
    np.testing.assert_allclose(got, powers / powers.sum(1, keepdims=True), rtol=1e-4)
