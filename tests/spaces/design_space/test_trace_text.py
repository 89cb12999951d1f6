"""A template's schedule that is shown as Python can be run, and schedules the same."""

from __future__ import annotations

from typing import Any

import pytest

from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.realize import realize, trace_text
from spaces.ir.schedules import code_hash, new_schedule, task_module
from spaces.lowering.extract_tasks import task_of
from spaces.targets.target import resolve_target
from spaces.templates.registry import templates_of
from tuner.candidate import of_knobs
from tuner.task import Task

pytestmark = pytest.mark.tvm


def program(kind: str) -> Task:
    from tvm import te, topi

    a, b = te.placeholder((64, 48), name="a"), te.placeholder((48, 80), name="b")
    tensors: list[Any] = {
        "product": [a, b, topi.nn.matmul(a, b)],
        "softmax": [a, topi.nn.softmax(a, axis=1)],
    }[kind]
    return task_of(te.create_prim_func(tensors), resolve_target("llvm", cores=2), name=kind)


@pytest.mark.parametrize("kind", ["product", "softmax"])
def test_what_is_shown_can_be_run(kind: str) -> None:
    import tvm
    from tvm.script import tirx as T

    task = program(kind)
    space = KnobSpace(task, templates_of(task)[0])
    for knobs in space.ranked[:200:20]:
        candidate = of_knobs(knobs, space.name)
        again = new_schedule(task_module(task.module))
        exec(trace_text(task, candidate), {"sch": again, "T": T, "tvm": tvm})
        assert code_hash(again.mod) == code_hash(realize(task, candidate).mod), knobs
