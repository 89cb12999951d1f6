"""A small network in Relax, for `tuner tune examples/dense.py:dense --arg batch=32`.

With `--dim T=5,24,43,62` its number of rows stays symbolic: it is made fast for these.
"""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from tuner import ShapeVar


def dense(
    batch: int = 16,
    features: int = 256,
    layers: int = 2,
    seed: int = 0,
    T: ShapeVar | None = None,
) -> IRModule:
    """Dense layers with bias and ReLU between, weights drawn from `seed`.

    With T, the input has 16 T rows, as that of a transformer's layer for 16 sequences.
    """
    rng = np.random.default_rng(seed)
    builder = relax.BlockBuilder()
    rows = batch if T is None else 16 * T
    x = relax.Var("x", relax.TensorType((rows, features), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: relax.Expr = x
            for _ in range(layers):
                scale = np.sqrt(2 / features)
                weight = (rng.standard_normal((features, features)) * scale).astype("float32")
                bias = rng.standard_normal(features).astype("float32")
                value = builder.emit(relax.op.matmul(value, relax.const(weight)))
                value = builder.emit(relax.op.add(value, relax.const(bias)))
                value = builder.emit(relax.op.nn.relu(value))
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return builder.get()
