"""Whole models run in the Relax virtual machine, their kernels on the emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, run_once
from spaces.deploy.apply import apply_best
from spaces.design_space.knob_space import KnobSpace
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.templates.registry import templates_of
from tests.spaces.emulation.samples import AMPERE
from tests.spaces.templates.tensor_cores.products import HOPPER
from tuner.candidate import of_knobs

pytestmark = pytest.mark.tvm
_ROWS, _DEPTH, _HIDDEN, _CLASSES = 7, 33, 45, 10


def network(weights: tuple[Any, Any]) -> Any:
    """Two products, a ReLU between them, a change of shape that costs nothing, and a softmax."""
    from tvm import relax

    builder = relax.BlockBuilder()
    depth, kind = weights[0].shape[0], str(weights[0].dtype)
    x = relax.Var("x", relax.TensorType((_ROWS, 3, depth // 3), kind))
    first, second = map(relax.const, weights)
    with builder.function("main", [x]):
        with builder.dataflow():
            square = builder.emit(relax.op.nn.relu(x))
            flat = builder.emit(relax.op.reshape(square, (_ROWS, depth)))
            hidden = builder.emit(relax.op.nn.relu(relax.op.matmul(flat, first)))
            last = relax.op.nn.softmax(relax.op.matmul(hidden, second), axis=-1)
            output = builder.emit_output(last)
        builder.emit_func_output(output)
    return builder.get()


def draw(depth: int, hidden: int, classes: int, kind: str) -> tuple[Any, tuple[Any, Any]]:
    """An input and the weights."""
    rng = np.random.default_rng(0)
    shapes = ((_ROWS, 3, depth // 3), (depth, hidden), (hidden, classes))
    x, first, second = ((rng.standard_normal(s) / s[-1] ** 0.5).astype(kind) for s in shapes)
    return x, (first, second)


def compute(x: Any, weights: tuple[Any, Any]) -> Any:
    """What the network computes, in numpy."""
    first, second = (w.astype("float64") for w in weights)
    last = np.maximum(np.maximum(x, 0).reshape(_ROWS, -1).astype("float64") @ first, 0) @ second
    powers = np.exp(last - last.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def test_a_network_is_right_on_the_emulated_device() -> None:
    x, weights = draw(_DEPTH, _HIDDEN, _CLASSES, "float32")
    (got,) = run_once(compile_module(network(weights), AMPERE), [x])
    np.testing.assert_allclose(got, compute(x, weights), rtol=1e-4)


def test_a_network_in_halves_is_right_with_programs_for_hopper_in_it() -> None:
    x, weights = draw(48, 72, 24, "float16")
    lowered = lower(network(weights), HOPPER)
    best = {}
    for task in extract(lowered, HOPPER):
        space = KnobSpace(task, templates_of(task)[0])
        best[task.key] = of_knobs(space.ranked[0], space.name)
    spaces = sorted(candidate.space for candidate in best.values())
    assert spaces == ["kernel:gpu-memory-1"] * 2 + ["kernel:hopper-product-3"] * 2
    (got,) = run_once(compile_module(apply_best(best, HOPPER)(lowered), HOPPER), [x])
    np.testing.assert_allclose(got, compute(x, weights), atol=2e-3)
