"""From a lowered module to tasks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.frontends.model import load_model
from spaces.ir import tvm_compat
from spaces.lowering.extract_tasks import extract, key_of
from spaces.lowering.lower import lower
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec

pytestmark = pytest.mark.tvm

ROOT = Path(__file__).parents[3]
LLVM = '{"kind":"llvm","num-cores":1}'


def lowered(source: str, **args: int) -> Any:
    spec = ModelSpec(f"{ROOT}/examples/{source}", args=tuple(args.items()))
    return lower(load_model(spec).module, LLVM)


def test_equal_programs_are_one_task_weighted_by_its_calls() -> None:
    (task,) = extract(lowered("dense.py:dense", layers=3), LLVM)
    assert task.name == "fused_matmul_add_relu"
    assert task.weight == 3
    assert task.target == LLVM
    assert task.flops == pytest.approx(16 * 256 * (2 * 256 + 2))


def test_programs_equal_but_for_their_names_are_merged() -> None:
    from tvm.ir import IRModule

    gemm = lowered("gemm.py:gemm")["gemm"]
    module = IRModule({"a": gemm.with_attr("global_symbol", "a"), "b": gemm})
    (task,) = extract(module, LLVM)
    assert (task.name, task.weight) == ("a", 2)


def test_a_tensor_program_is_one_task_under_its_own_name() -> None:
    (task,) = extract(lowered("gemm.py:gemm"), LLVM)
    assert (task.name, task.weight, task.flops) == ("gemm", 1, 2 * 512**3)


def test_a_tasks_module_holds_one_function_called_main() -> None:
    import tvm

    (task,) = extract(lowered("gemm.py:gemm"), LLVM)
    module = tvm.ir.load_json(task.module)
    ((name, function),) = tvm_compat.prim_funcs(module)
    assert (name, tvm_compat.attribute(function, "global_symbol")) == ("main", "main")
    assert key_of(function, LLVM) == task.key


def test_keys_follow_the_program_and_the_target() -> None:
    other = '{"kind":"llvm","num-cores":2}'
    (small,) = extract(lowered("gemm.py:gemm", m=64), LLVM)
    (large,) = extract(lowered("gemm.py:gemm", m=128), LLVM)
    (elsewhere,) = extract(lowered("gemm.py:gemm", m=64), other)
    assert len({small.key, large.key, elsewhere.key}) == 3


def test_keys_are_the_same_in_another_process() -> None:
    code = (
        "from spaces.lowering.extract_tasks import extract\n"
        "from spaces.lowering.lower import lower\n"
        "from spaces.frontends.model import load_model\n"
        "from tuner.request.options import ModelSpec\n"
        f"module = load_model(ModelSpec({f'{ROOT}/examples/dense.py:dense'!r})).module\n"
        f"print(*[t.key for t in extract(lower(module, {LLVM!r}), {LLVM!r})])\n"
    )
    here = [t.key for t in extract(lowered("dense.py:dense"), LLVM)]
    there = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert there.stdout.split() == here, there.stderr


def test_tasks_come_in_the_order_of_the_program() -> None:
    from tvm import relax

    b = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 8), "float32"))
    with b.function("main", [x]):
        with b.dataflow():
            hot = b.emit(relax.op.nn.softmax(x))
            product = b.emit(relax.op.matmul(hot, relax.const(np.ones((8, 8), "float32"))))
            out = b.emit_output(relax.op.sum(product))
        b.emit_func_output(out)
    tasks = extract(lower(b.get(), LLVM), LLVM)
    assert [t.name for t in tasks] == ["softmax", "matmul", "sum"]


def test_a_glob_selects_by_name() -> None:
    module = lowered("dense.py:dense")
    assert len(extract(module, LLVM, "*matmul*")) == 1
    with pytest.raises(TunerError, match=r"--only conv\*: .* there are fused_matmul_add_relu"):
        extract(module, LLVM, "conv*")


def test_scheduled_programs_are_left_out() -> None:
    from tvm.ir import IRModule

    gemm = lowered("gemm.py:gemm")["gemm"].with_attr(tvm_compat.IS_SCHEDULED, True)
    with pytest.raises(TunerError, match="nothing to tune"):
        extract(IRModule({"gemm": gemm}), LLVM)
