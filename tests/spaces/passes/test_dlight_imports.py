"""What TVM's rules for GPUs import when they are asked for a schedule."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.tvm

ASK = """
import sys
from tvm import te, topi
from spaces.passes.dlight import schedules
from spaces.lowering.extract_tasks import task_of
from spaces.ir.schedules import task_module
from spaces.targets.target import resolve_target

target = resolve_target('{"kind":"cuda","arch":"sm_80"}')
a, b = (te.placeholder((128, 128), "float16", name=name) for name in "ab")
program = te.create_prim_func([a, b, topi.nn.matmul(a, b)])
rule, _ = next(schedules(task_module(task_of(program, target, name="t").module), target))
print(rule, *sorted(m.rpartition(".")[2] for m in sys.modules if ".tensor_intrin." in m))
"""


def test_a_schedule_for_halves_costs_no_intrinsics_of_other_targets() -> None:
    command = [sys.executable, "-c", ASK]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Matmul", "cuda"]
