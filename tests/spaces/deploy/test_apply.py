"""The pass that swaps schedules in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, run_once
from spaces.deploy.apply import apply_best
from spaces.frontends.inputs import make_inputs
from spaces.frontends.model import Model, load_model
from spaces.ir import tvm_compat
from spaces.ir.schedules import canonical_payload, new_schedule, task_module
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from tuner.candidate import Candidate, CandidateKind
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec
from tuner.task import Task

pytestmark = pytest.mark.tvm

EXAMPLES = Path(__file__).parents[3] / "examples"
LLVM = '{"kind":"llvm","num-cores":1}'


def tiled(task: Task, block: str) -> Candidate:
    """A schedule by hand: a block's outer loop split in two and the outer part parallel."""
    schedule = new_schedule(task_module(task.module))
    loop = schedule.get_loops(schedule.get_sblock(block))[0]
    outer, _ = schedule.split(loop, [None, 4])
    schedule.parallel(outer)
    return Candidate(CandidateKind.TRACE, canonical_payload(schedule.trace), "default")


def example(source: str) -> tuple[Model, Any, list[Task]]:
    model = load_model(ModelSpec(f"{EXAMPLES}/{source}"))
    lowered = lower(model.module, LLVM)
    return model, lowered, extract(lowered, LLVM)


def scheduled(module: Any) -> list[str]:
    return [
        n
        for n, f in tvm_compat.prim_funcs(module)
        if tvm_compat.attribute(f, tvm_compat.IS_SCHEDULED)
    ]


def test_a_schedule_takes_its_programs_place_in_a_graph() -> None:
    model, lowered, (task,) = example("dense.py:dense")
    tuned = apply_best({task.key: tiled(task, "matmul")}, LLVM)(lowered)
    assert scheduled(lowered) == []
    assert scheduled(tuned) == [task.name]
    assert "T.parallel" in tuned[task.name].script()
    inputs = make_inputs(model.inputs)
    (expected,) = run_once(compile_module(lowered, LLVM), inputs)
    (got,) = run_once(compile_module(tuned, LLVM), inputs)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_names_and_attributes_are_kept() -> None:
    from tvm.ir import IRModule

    _, lowered, (task,) = example("gemm.py:gemm")
    gemm = lowered["gemm"].with_attr("mine", 7)
    lowered = IRModule({"gemm": gemm})
    (task,) = extract(lowered, LLVM)
    tuned = apply_best({task.key: tiled(task, "C")}, LLVM)(lowered)["gemm"]
    assert tvm_compat.attribute(tuned, "global_symbol") == "gemm"
    assert tvm_compat.attribute(tuned, "mine") == 7


def test_programs_without_a_schedule_and_scheduled_ones_are_left_alone() -> None:
    from tvm.ir import IRModule
    from tvm_ffi import structural_equal

    _, lowered, (task,) = example("gemm.py:gemm")
    assert structural_equal(apply_best({}, LLVM)(lowered), lowered)
    done = IRModule({"gemm": lowered["gemm"].with_attr(tvm_compat.IS_SCHEDULED, True)})
    assert structural_equal(apply_best({task.key: tiled(task, "C")}, LLVM)(done), done)


def test_the_pass_composes_with_others() -> None:
    from tvm import transform

    _, lowered, (task,) = example("dense.py:dense")
    both = transform.Sequential([apply_best({task.key: tiled(task, "matmul")}, LLVM)] * 2)
    assert scheduled(both(lowered)) == [task.name]


def test_a_schedule_that_no_longer_applies_is_an_error() -> None:
    _, lowered, (task,) = example("gemm.py:gemm")
    foreign = Candidate(CandidateKind.PINNED, "0", "hand")
    with pytest.raises(TunerError, match="stored schedule of gemm does not apply"):
        apply_best({task.key: foreign}, LLVM)(lowered)
