"""Whole models run in the Relax virtual machine, their kernels on the emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, run_once
from spaces.deploy.apply import apply_best
from spaces.design_space.knob_space import KnobSpace
from spaces.frontends.declared import resolve
from spaces.frontends.onnx.model import read_onnx_proto
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.templates.registry import templates_of
from tests.spaces.emulation.samples import AMPERE
from tests.spaces.frontends.onnx.beside_onnxruntime import by_onnxruntime, parsed
from tests.spaces.templates.tensor_cores.products import HOPPER
from tuner.candidate import of_knobs
from tuner.dynamic.shapes import NO_DOMAIN

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
    spaces, (got,) = run_best(network(weights), HOPPER, x)
    assert spaces == ["kernel:gpu-memory-2"] * 2 + ["kernel:hopper-product-4"] * 2
    np.testing.assert_allclose(got, compute(x, weights), atol=2e-3)


def run_best(module: Any, target: str, x: Any) -> tuple[list[str], Any]:
    """The spaces of a model's programs, each with its best predicted setting, and what it gives."""
    lowered, best = lower(module, target), {}
    for task in extract(lowered, target):
        space = KnobSpace(task, templates_of(task)[0])
        best[task.key] = of_knobs(space.ranked[0], space.name)
    spaces = sorted(candidate.space for candidate in best.values())
    return spaces, run_once(compile_module(apply_best(best, target)(lowered), target), [x])


@pytest.mark.each_value
@pytest.mark.parametrize("target", [AMPERE, HOPPER], ids=["ampere", "hopper"])
@pytest.mark.parametrize("inner", [0, 128], ids=["zeros", "other numbers"])
def test_a_quantized_network_gives_the_bytes_of_onnxruntime(target: str, inner: int) -> None:
    """Convolutions that are padded with what stands for zero, be it 0 or not."""
    rng = np.random.default_rng(0)
    kernels = [rng.integers(-128, 128, shape, "int8") for shape in ((64, 48, 3, 3), (48, 64, 3, 3))]
    proto = parsed(
        """<ir_version: 8, opset_import: ["" : 17]> g (uint8[1,48,14,14] x) => (uint8[n,c,h,w] y) {
        a = QLinearConv<pads = [1, 1, 1, 1]>(x, s, z, w, s, none, t, inner, b)
        y = QLinearConv<pads = [1, 1, 1, 1]>(a, s, inner, v, s, none, t, z, d) }""",
        s=np.array(0.1, np.float32),
        t=np.array(15.3, np.float32),
        z=np.array(3, np.uint8),
        inner=np.array(inner, np.uint8),
        none=np.array(0, np.int8),
        w=kernels[0],
        v=kernels[1],
        b=rng.integers(-9000, 9000, 64, np.int32),
        d=rng.integers(-9000, 9000, 48, np.int32),
    )
    x = rng.integers(0, 256, (1, 48, 14, 14), "uint8")
    source = read_onnx_proto(proto, "quantized")
    spaces, (got,) = run_best(source.imported(resolve(source.declared), NO_DOMAIN), target, x)
    product = "ampere-int8-product-1" if target == AMPERE else "hopper-int8-product-3"
    assert spaces.count(f"kernel:{product}") == 2
    (wanted,) = by_onnxruntime(proto, {"x": x})
    assert len(np.unique(wanted)) > 50, "most are not cut off"
    np.testing.assert_array_equal(got, wanted)
