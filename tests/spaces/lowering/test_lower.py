"""The lowering: what becomes of a model's operators."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, run_once
from spaces.frontends.model import load_model
from spaces.ir import tvm_compat
from spaces.lowering.lower import lower
from spaces.targets.target import resolve_target
from tuner.request.model_spec import ModelSpec

pytestmark = pytest.mark.tvm

EXAMPLES = Path(__file__).parents[3] / "examples"
LLVM = '{"kind":"llvm","num-cores":1}'


def conv_and_batch_norm() -> Any:
    from tvm import relax

    rng = np.random.default_rng(0)

    def const(*shape: int) -> Any:
        return relax.const((0.5 + rng.random(shape)).astype("float32"))

    b = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 3, 8, 8), "float32"))
    with b.function("main", [x]):
        with b.dataflow():
            conv = b.emit(relax.op.nn.conv2d(x, const(4, 3, 3, 3)))
            norm = b.emit(
                relax.op.nn.batch_norm(conv, const(4), const(4), const(4), const(4), axis=1)
            )
            out = b.emit_output(relax.op.nn.relu(b.emit(relax.TupleGetItem(norm, 0))))
        b.emit_func_output(out)
    return b.get()


def test_a_batch_norm_after_a_convolution_is_folded_into_it() -> None:
    (program,) = tvm_compat.prim_funcs(lower(conv_and_batch_norm(), LLVM))
    assert program[0].startswith("fused_conv2d")
    for operator in ("divide", "sqrt", "subtract", "multiply"):
        assert operator not in program[0]


def test_the_lowered_model_computes_what_the_model_does() -> None:
    from tvm import relax, transform
    from tvm.target import Target

    module = conv_and_batch_norm()
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype("float32")
    with Target({"kind": "llvm", "num-cores": 1}):
        plain = transform.Sequential(
            [relax.transform.DecomposeOpsForInference(), relax.transform.LegalizeOps()]
        )(module)
    (expected,) = run_once(compile_module(plain, LLVM), [x])
    (got,) = run_once(compile_module(lower(module, LLVM), LLVM), [x])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_reshapes_of_intermediate_values_are_no_programs() -> None:
    from tvm import relax

    b = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 6), "float32"))
    with b.function("main", [x]):
        with b.dataflow():
            first = b.emit(relax.op.nn.softmax(x))
            flat = b.emit(relax.op.reshape(first, (2, 12)))
            out = b.emit_output(relax.op.nn.softmax(flat))
        b.emit_func_output(out)
    lowered = lower(b.get(), LLVM)
    assert [n for n, _ in tvm_compat.prim_funcs(lowered)] == ["softmax", "softmax1"]
    array = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")
    (got,) = run_once(compile_module(lowered, LLVM), [array])
    assert got.shape == (2, 12)
    np.testing.assert_allclose(got.sum(axis=1), 1, rtol=1e-5)


def test_tensor_programs_stay_as_they_are_and_keep_their_names() -> None:
    from tvm.ir import IRModule

    gemm = load_model(ModelSpec(f"{EXAMPLES}/gemm.py:gemm")).module["gemm"]
    private = gemm.without_attr("global_symbol")
    lowered = lower(IRModule({"gemm": gemm, "private": private}), LLVM)
    symbols = [tvm_compat.attribute(f, "global_symbol") for _, f in tvm_compat.prim_funcs(lowered)]
    assert symbols == ["gemm", "private"]


def test_the_lowering_is_public() -> None:
    import tuner

    assert tuner.lower is lower


@pytest.mark.slow
def test_residual_additions_of_resnet50_are_fused_with_their_convolutions(tmp_path: Path) -> None:
    sys.path.insert(0, str(EXAMPLES))
    try:
        from squeezenet import seeded_network
    finally:
        sys.path.remove(str(EXAMPLES))
    import onnx

    onnx.save(seeded_network("resnet50"), str(tmp_path / "resnet50.onnx"))
    model = load_model(ModelSpec(str(tmp_path / "resnet50.onnx")))
    found = [n for n, _ in tvm_compat.prim_funcs(lower(model.module, resolve_target("llvm")))]
    assert not [n for n in found if "stack" in n or "divide" in n or n.startswith("relu")]
    assert [n for n in found if n.startswith("fused_conv2d") and n.count("add") == 2]
