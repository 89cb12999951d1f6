"""A schedule that is shown as Python can be pasted into a function, and schedules the same."""

from __future__ import annotations

from typing import Any

import pytest

from spaces.design_space.realize import realize, trace_text
from spaces.design_space.task_space import TaskSpace
from spaces.ir.schedules import InvalidCandidate, code_hash, new_schedule, task_module
from spaces.lowering.extract_tasks import task_of
from spaces.targets.target import resolve_target
from tuner.candidate import Draft, family
from tuner.task import Task

pytestmark = pytest.mark.tvm


def program(kind: str) -> Task:
    from tvm import te, topi

    x = te.placeholder((1, 14, 14, 32), name="x")
    w = te.placeholder((3, 3, 32, 48), name="w")
    a, b = te.placeholder((64, 48), name="a"), te.placeholder((48, 80), name="b")
    tensors: list[Any] = {
        "convolution": [x, w, topi.nn.relu(topi.nn.conv2d_nhwc(x, w, 1, 1, 1))],
        "product": [a, b, topi.nn.matmul(a, b)],
        "softmax": [a, topi.nn.softmax(a, axis=1)],
    }[kind]
    return task_of(te.create_prim_func(tensors), resolve_target("llvm", cores=2), name=kind)


@pytest.mark.parametrize("kind", ["convolution", "product", "softmax"])
def test_what_is_shown_can_be_run(kind: str) -> None:
    task = program(kind)
    space, seen = TaskSpace(task), set()
    for number in range(1, 25):
        try:
            candidate = space.realize_draft(Draft(task.key, number, 3 * number)).candidate
            scheduled = realize(task, candidate).mod
        except InvalidCandidate:
            continue
        again = new_schedule(task_module(task.module))
        exec(trace_text(task, candidate), {"sch": again})
        assert code_hash(again.mod) == code_hash(scheduled), candidate
        seen.add(family(candidate.space))
    assert seen == {"kernel", "rules"}
