"""Whatever program is drawn: what is built of it, with any schedule, computes what Python does."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spaces.check.reference import reference
from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.codegen.executable import Array, compile_module, export_library, run_once
from spaces.deploy.apply import apply_best
from spaces.design_space.point import Point
from spaces.design_space.realize import realize
from spaces.design_space.task_space import TaskSpace
from spaces.frontends.function_model import read_program
from spaces.ir.schedules import InvalidCandidate, task_module
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from tests.few_examples import examples
from tests.in_a_line import make_or_refuse
from tests.spaces.lowering.drawn_programs import Drawn, programs
from tuner.candidate import Candidate, Draft
from tuner.task import Task

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'
_DRAFTS = 3


def lowered(drawn: Drawn) -> Any:
    import tvm

    function = tvm.script.from_source(drawn.script)
    return lower(read_program(function, "drawn.py:main", "main").module, LLVM)


def with_tasks(drawn: Drawn) -> tuple[Any, list[Task]]:
    module = lowered(drawn)
    return module, [*extract(module, LLVM)]


def points(task: Task, seed: int) -> list[Point]:
    """A few schedules of it."""
    found = []
    for number in range(_DRAFTS):
        try:
            found.append(TaskSpace(task).realize_draft(Draft(task.key, number, seed + number)))
        except InvalidCandidate:
            continue
    return found


def check_by_gate(task: Task, point: Point) -> None:
    """The gate lets a right kernel pass."""
    import tvm

    kernel = load_kernel(build_artifact(realize(task, point.candidate).mod, LLVM))
    for known in reference(task_module(task.module), task.key).cases:
        tensors = [tvm.runtime.tensor(known.fresh(i)) for i in range(len(known.arguments))]
        kernel.module["main"](*kernel.arguments(tensors, tvm.cpu()))
        for position in known.outputs:
            wrong = known.wrong(position, tensors[position].numpy())
            assert wrong is None, (wrong, point.candidate)


def run_file(executable: Any, feeds: list[Array], output: Array) -> Array:
    """What an exported library computes."""
    import tvm

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "drawn.so"
        export_library(executable, file)
        tensors = [tvm.runtime.tensor(array) for array in (*feeds, output)]
        tvm.runtime.load_module(str(file))["main"](*tensors)
        return np.asarray(tensors[-1].numpy())


def check_values(got: Array, drawn: Drawn, want: Array) -> None:
    if drawn.dtype == "int32":
        np.testing.assert_array_equal(got, want)
    else:
        scale = float(np.abs(want).max(initial=1.0))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * scale)


@settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(programs(), st.integers(0, 1 << 20))
def test_it_computes_what_python_does_or_is_refused_in_a_line(drawn: Drawn, seed: int) -> None:
    feeds = drawn.feeds(seed)
    want = drawn.meaning(feeds)
    garbage = np.full(want.shape, 77, want.dtype)
    taken = make_or_refuse(lambda: with_tasks(drawn))
    if taken is None:
        return
    module, tasks = taken
    check_values(run_once(compile_module(module, LLVM), [*feeds, garbage])[-1], drawn, want)
    best: Mapping[str, Candidate] = {}
    for task in tasks:
        for point in points(task, seed):
            check_by_gate(task, point)
            best = {**best, task.key: point.candidate}
    tuned = compile_module(apply_best(best, LLVM)(module), LLVM)
    check_values(run_file(tuned, feeds, garbage), drawn, want)
