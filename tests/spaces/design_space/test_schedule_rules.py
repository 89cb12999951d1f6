"""TVM's rules for a program, also where one of them fails."""

from __future__ import annotations

from typing import Any

import pytest

from spaces.design_space.schedule_rules import make_rules
from spaces.frontends.function_model import read_program
from spaces.ir.schedules import task_module
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'


def one_element_of_a_sum() -> Any:
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def main(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (4, 3), "float32")
        B = T.match_buffer(b, (16,), "float32")
        S = T.alloc_buffer((4, 3), "float32")
        for i, j, k in T.grid(4, 3, 3):
            with T.sblock("sum"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    S[vi, vj] = T.float32(0)
                S[vi, vj] = S[vi, vj] + A[vi, vk]
        for i in range(16):
            B[i] = S[1, 0]

    return main


def test_a_rule_with_which_tvm_fails_is_left_out() -> None:
    module = lower(read_program(one_element_of_a_sum(), "f.py:f", "f").module, LLVM)
    (task,) = extract(module, LLVM)
    rules = make_rules(task_module(task.module), LLVM)
    with pytest.raises(Exception, match="CanProveSinglePoint"):
        rules.context.generate_design_space()
    assert rules.sketch()
