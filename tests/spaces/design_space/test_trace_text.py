"""A template's schedule that is shown as Python can be run, and schedules the same."""

from __future__ import annotations

import pytest

from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.realize import realize, trace_text
from spaces.ir.schedules import code_hash, new_schedule, task_module
from spaces.templates.registry import templates_of
from tests.spaces.design_space.test_task_space import task as program_task
from tuner.candidate import of_knobs

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize("kind", ["product", "softmax"])
def test_what_is_shown_can_be_run(kind: str) -> None:
    import tvm
    from tvm.script import tirx as T

    task = program_task(kind)
    space = KnobSpace(task, templates_of(task)[0])
    for knobs in space.ranked[:200:20]:
        candidate = of_knobs(knobs, space.name)
        again = new_schedule(task_module(task.module))
        exec(trace_text(task, candidate), {"sch": again, "T": T, "tvm": tvm})
        assert code_hash(again.mod) == code_hash(realize(task, candidate).mod), knobs
