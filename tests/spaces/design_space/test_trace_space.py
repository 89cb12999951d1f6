"""Trace spaces: valid points only, the same everywhere for the same draft."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spaces.design_space.default_schedule import default_candidate
from spaces.design_space.realize import DEFAULT_SPACE, realize, trace_text
from spaces.design_space.trace_space import TraceSpace
from spaces.ir.schedules import InvalidCandidate, code_hash
from tests.contracts.programs import gemm_task
from tests.few_examples import examples
from tests.lean import LEAN
from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.task import Task

pytestmark = pytest.mark.tvm

CUDA = json.dumps(
    {
        "kind": "cuda",
        "arch": "sm_80",
        "max_num_threads": 1024,
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
        "registers_per_block": 65536,
        "thread_warp_size": 32,
    }
)


@pytest.fixture(scope="module")
def task() -> Task:
    return gemm_task()


@pytest.fixture(scope="module")
def space(task: Task) -> TraceSpace:
    return TraceSpace(task)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**31 - 1))
def test_a_sample_realises_to_the_program_it_was_checked_as(
    task: Task, space: TraceSpace, seed: int
) -> None:
    point = space.realize_draft(Draft(task.key, 1, seed))
    assert code_hash(realize(task, point.candidate).mod) == point.code_hash


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**31 - 1), child_seed=st.integers(0, 2**31 - 1))
def test_a_mutation_is_a_point_of_the_same_space(
    task: Task, space: TraceSpace, seed: int, child_seed: int
) -> None:
    parent = space.realize_draft(Draft(task.key, 1, seed)).candidate
    try:
        child = space.realize_draft(Draft(task.key, 2, child_seed, parent))
    except InvalidCandidate:
        return
    assert child.candidate.space == parent.space
    assert code_hash(realize(task, child.candidate).mod) == child.code_hash


def test_most_mutations_give_something_else(task: Task, space: TraceSpace) -> None:
    parent = space.realize_draft(Draft(task.key, 1, 5)).candidate
    keys = set()
    for seed in range(40):
        try:
            keys.add(space.realize_draft(Draft(task.key, seed, seed, parent)).candidate.key)
        except InvalidCandidate:
            continue
    assert len(keys - {parent.key}) > 15


_DRAFTED = """
import sys, json
from spaces.design_space.trace_space import TraceSpace
from tuner.candidate import Draft
from tuner.task import Task
task = Task(*json.load(sys.stdin))
space = TraceSpace(task)
for seed in range(5):
    point = space.realize_draft(Draft(task.key, seed, seed))
    child = space.realize_draft(Draft(task.key, seed, seed + 100, point.candidate))
    print(point.candidate.key, point.code_hash, child.candidate.key)
"""


def test_a_draft_gives_the_same_point_in_any_process(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another than this one, too."""
    given_task = json.dumps([task.key, task.name, task.module, task.target])
    there = subprocess.run(
        [sys.executable, "-c", LEAN + _DRAFTED],
        input=given_task,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    monkeypatch.setattr(sys, "stdin", StringIO(given_task))
    with redirect_stdout(StringIO()) as here:
        exec(_DRAFTED, {})
    assert len(there.split()) == 15
    assert here.getvalue() == there


def test_the_default_schedule_of_a_cpu_is_the_program_as_lowered(task: Task) -> None:
    import tvm

    default = default_candidate(task)
    assert default.space == DEFAULT_SPACE
    assert code_hash(realize(task, default).mod) == code_hash(tvm.ir.load_json(task.module))


def test_the_default_schedule_of_a_gpu_binds_threads() -> None:
    task = gemm_task(CUDA, 256)
    scheduled = realize(task, default_candidate(task)).mod.script()
    assert "threadIdx.x" in scheduled


def test_cuda_has_a_space_too() -> None:
    task = gemm_task(CUDA, 256)
    space = TraceSpace(task)
    for seed in range(200):
        try:
            point = space.realize_draft(Draft(task.key, 1, seed))
        except InvalidCandidate:
            continue
        assert "threadIdx.x" in point.schedule.mod.script()
        return
    pytest.fail("no valid sample in 200")


_PRODUCT = """
import json, sys, tvm
from spaces.codegen.artifact import build_artifact
from spaces.ir.schedules import InvalidCandidate
from spaces.design_space.trace_space import TraceSpace
from tuner.candidate import Draft
from tuner.task import Task
from tvm import te
left, right, out, target = sys.argv[1:]
a, b = te.placeholder((256, 256), left, name="a"), te.placeholder((256, 256), right, name="b")
k = te.reduce_axis((0, 256), name="k")
c = te.compute(
    (256, 256),
    lambda i, j: te.sum(a[i, k].astype(out) * b[j, k].astype(out), axis=k),
    name="c",
)
module = tvm.IRModule({"main": te.create_prim_func([a, b, c])})
space = TraceSpace(Task("key", "name", tvm.ir.save_json(module), target))
for seed in range(200):
    try:
        point = space.realize_draft(Draft("key", seed, seed))
        break
    except InvalidCandidate:
        continue
print(space.name, point.candidate.key, "tensorize" in point.candidate.payload.lower())
if "llvm" in target:
    print(len(build_artifact(point.schedule.mod, target)) > 0)
"""


def in_a_process_with_cache(cache: Path, *arguments: str) -> list[str]:
    return subprocess.run(
        [sys.executable, "-c", LEAN + _PRODUCT, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    ).stdout.split()


def test_products_of_bytes_have_candidates_that_compile(tmp_path: Path) -> None:
    from spaces.targets.target import resolve_target

    answer = in_a_process_with_cache(tmp_path, "uint8", "int8", "int32", resolve_target("llvm"))
    assert answer[-1] == "True"


@pytest.mark.slow
def test_half_precision_on_a_gpu_uses_tensor_cores_and_keeps_their_intrinsics(
    tmp_path: Path,
) -> None:
    first = in_a_process_with_cache(tmp_path, "float16", "float16", "float16", CUDA)
    assert first[0] == "rules:cuda-tensorcore"
    assert first[2] == "True"
    assert list(tmp_path.rglob("intrinsics-cuda-*.json"))
    assert in_a_process_with_cache(tmp_path, "float16", "float16", "float16", CUDA) == first


def test_a_trace_reads_as_python(task: Task, space: TraceSpace) -> None:
    point = space.realize_draft(Draft(task.key, 1, 5))
    text = trace_text(task, point.candidate)
    assert "sch.split(" in text
    assert "sample_perfect_tile" in text


def test_a_payload_that_is_no_trace_of_the_task_is_refused(task: Task) -> None:
    for payload in ("[[],", '[[["GetSBlock",[],["nowhere","main"],["b0"]]],[]]'):
        with pytest.raises(InvalidCandidate):
            realize(task, Candidate(CandidateKind.TRACE, payload, "rules:llvm"))


def test_a_worker_needs_no_slow_imports() -> None:
    """The package of all intrinsics takes half a minute to import: nobody may."""
    code = (
        "import sys, spaces.design_space.evaluate; spaces.design_space.evaluate.make_evaluator();"
        "print(hasattr(sys.modules['tvm.s_tir.tensor_intrin'], 'cuda'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "False"
