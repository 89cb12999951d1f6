"""A network with a function for each way to a schedule, and what it computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

ROWS, WIDE, NARROW, MIXED = 48, 64, 32, 512


def weights() -> list[Array]:
    rng = np.random.default_rng(5)
    shapes = ((NARROW, WIDE), (WIDE, MIXED), (MIXED, NARROW), (NARROW, WIDE))
    return [(0.2 * rng.normal(size=shape)).astype(np.float32) for shape in shapes]


def given() -> Array:
    return np.random.default_rng(7).normal(size=(ROWS, NARROW)).astype(np.float32)


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def wanted() -> Array:
    first, square, back, again = weights()
    hidden = softmax(np.tanh(given() @ first) @ square)
    return np.sort(softmax(np.float32(3.0) * hidden @ back @ again), axis=1)


def network() -> Any:
    """Products with and without something after them, softmaxes, a factor, a sort."""
    from tvm import relax

    first, square, back, again = (relax.const(weight) for weight in weights())
    x = relax.Var("x", relax.TensorType((ROWS, NARROW), "float32"))
    op, builder = relax.op, relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            hidden = builder.emit(op.tanh(op.matmul(x, first)))  # like the last product
            mixed = builder.emit(op.nn.softmax(op.matmul(hidden, square)))
            larger = builder.emit(op.multiply(mixed, relax.const(np.float32(3.0))))
            shared = builder.emit(op.matmul(op.matmul(larger, back), again))
            shares = builder.emit(op.nn.softmax(shared))
            out = builder.emit_output(op.sort(shares, axis=1))
        builder.emit_func_output(out)
    return builder.get()


def run(lowered: Any, target_json: str) -> Array:
    """The output of a lowered network."""
    import json

    import tvm
    from tvm import relax

    import tuner

    target = tvm.target.Target(json.loads(target_json))
    built = tvm.compile(
        lowered,
        target=target,
        relax_pipeline="default_build",
        tir_pipeline=tuner.tir_pipeline(target),
    )
    machine = relax.VirtualMachine(built, tvm.cpu())
    return np.asarray(machine["main"](tvm.runtime.tensor(given())).numpy())


def left_alone() -> Any:
    """A pass that schedules nothing."""
    from tvm.ir.transform import module_pass

    return module_pass(lambda module, _: module, opt_level=0, name="LeftAlone")
