"""Schedules without TVM's checks of argument types: the same programs, the same refusals."""

from __future__ import annotations

import pytest

from spaces.ir.schedules import code_hash, new_schedule, task_module
from spaces.ir.unchecked_schedule import Unchecked
from tests.contracts.programs import gemm_task

pytestmark = pytest.mark.tvm


def test_it_does_to_a_schedule_what_the_schedule_does() -> None:
    from tvm.s_tir import Schedule

    module = task_module(gemm_task().module)
    schedules: list[Schedule] = [new_schedule(module), new_schedule(module)]
    for schedule in (schedules[0], Unchecked(schedules[1])):
        (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
        rows, *_ = schedule.get_loops(block)
        outer, _ = schedule.split(rows, [None, 8])
        schedule.parallel(outer)
    assert code_hash(schedules[0].mod) == code_hash(schedules[1].mod)
    assert str(schedules[0].trace) == str(schedules[1].trace)
    assert Unchecked(schedules[1]).mod is not None


def test_what_a_primitive_cannot_do_it_still_refuses() -> None:
    from tvm.s_tir.schedule import ScheduleError

    schedule = Unchecked(new_schedule(task_module(gemm_task().module)))
    with pytest.raises(ScheduleError):
        schedule.get_sblock("nowhere")
    with pytest.raises(AttributeError):
        schedule.no_such_primitive()
