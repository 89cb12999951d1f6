"""TVM's dlight rules with their constants open: a space that holds what the rules make."""

from __future__ import annotations

import pickle
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.proposals import TARGET
from spaces.codegen.artifact import build_artifact
from spaces.design_space.declared.fit import fit
from spaces.design_space.declared.spaces import find_declared
from spaces.design_space.default_schedule import default_candidate
from spaces.design_space.realize import realize
from spaces.design_space.trace_space import TraceSpace
from spaces.intrinsics.registration import register_intrinsics
from spaces.ir.schedules import (
    InvalidCandidate,
    canonical_payload,
    code_hash,
    replay,
    task_module,
)
from spaces.lowering.extract_tasks import task_of
from spaces.targets.target import resolve_target
from tests.lean import LEAN
from tests.needed import needs_nvcc
from tuner.candidate import Draft
from tuner.task import SpaceSource, Task

pytestmark = pytest.mark.tvm

FILE = "from tuner import space\nSPACE = space.dlight()\n"


def products(*, m: int, n: int, k: int, dtype: str = "float32") -> Any:
    from tvm import te, topi

    a, b = te.placeholder((m, k), dtype, name="a"), te.placeholder((k, n), dtype, name="b")
    return te.create_prim_func([a, b, topi.nn.matmul(a, b)])


def softmax() -> Any:
    from tvm import te, topi

    x = te.placeholder((64, 1000), name="x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


PROGRAMS = {
    "product": lambda: products(m=256, n=200, k=128),
    "one row": lambda: products(m=1, n=512, k=512),
    "halves": lambda: products(m=256, n=256, k=256, dtype="float16"),
    "softmax": softmax,
}


@pytest.fixture(scope="module", params=[*PROGRAMS])
def task(request: pytest.FixtureRequest) -> Task:
    bare = task_of(PROGRAMS[request.param](), resolve_target(TARGET), name="t")
    if request.param == "halves":
        register_intrinsics("cuda")  # as TVM's own rules need them; dlight imports them again
    source = SpaceSource("theirs.py", FILE, "SPACE")
    found = fit(source, [bare])
    assert found.error == ""
    return replace(bare, space=replace(source, parts=found.parts[bare.key]))


def test_its_points_are_many_and_most_are_valid(task: Task) -> None:
    (space,) = find_declared(task)
    points, refused = [], 0
    for number in range(24):
        try:
            points.append(space.realize_draft(Draft(task.key, number, 7 * number)))
        except InvalidCandidate:
            refused += 1
    assert refused <= 12
    assert len({point.code_hash for point in points}) >= 6
    assert code_hash(realize(task, points[-1].candidate).mod) == points[-1].code_hash


def test_what_the_rules_make_is_one_of_its_points(task: Task) -> None:
    (space,) = find_declared(task)
    assert isinstance(space, TraceSpace)
    module = task_module(task.module)
    undrawn = [replay(module, canonical_payload(trace)) for trace in space.sketches]
    made = realize(task, default_candidate(task))
    assert code_hash(made.mod) in {code_hash(schedule.mod) for schedule in undrawn}


@needs_nvcc
@pytest.mark.slow
def test_its_points_compile(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_CUDA_COMPILE_MODE", "nvcc")
    (space,) = find_declared(task)
    for number in range(100, 120):
        with suppress(InvalidCandidate):
            point = space.realize_draft(Draft(task.key, number, number))
            build_artifact(realize(task, point.candidate).mod, task.target)
            return
    pytest.fail("no draft of twenty was valid")


FRESH = """
import os, pickle, sys
from spaces.design_space.realize import realize
from spaces.ir.schedules import code_hash
import tvm
task, candidates = pickle.load(sys.stdin.buffer)
for candidate in candidates:
    if (child := os.fork()) == 0:
        print(code_hash(realize(task, candidate).mod))
        print([name for name in sys.modules if name == "tvm.s_tir.tensor_intrin.cuda"], flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
"""A process for each candidate; all have imported TVM once."""


def test_another_process_writes_its_points_without_parsing_intrinsics(task: Task) -> None:
    (space,) = find_declared(task)
    point = next(filter(None, (drafted(space, task, number) for number in range(30))))
    written = replace(
        point.candidate, trace=canonical_payload(point.schedule.trace, postprocessed=True)
    )
    said = subprocess.run(
        [sys.executable, "-c", LEAN + FRESH],
        input=pickle.dumps((task, (point.candidate, written))),
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert said.stdout.decode().split() == [point.code_hash, "[]"] * 2


def drafted(space: Any, task: Task, number: int) -> Any:
    with suppress(InvalidCandidate):
        return space.realize_draft(Draft(task.key, number, number))
    return None
