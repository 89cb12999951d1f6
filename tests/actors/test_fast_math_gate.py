"""Kernels that are compiled with fast math: every fault that is found without it is found."""

from __future__ import annotations

import pytest

from tests.actors.gate_programs import judged
from tests.actors.test_gate import FAULTS, RIGHT

pytestmark = [pytest.mark.tvm, pytest.mark.optimised, pytest.mark.long]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_within_the_bounds_of_fast_math(fault: str) -> None:
    program, compute = FAULTS[fault]
    assert judged(program, compute, fast_math=True) != ["", ""]


@pytest.mark.parametrize("kernel", RIGHT)
def test_what_is_right_without_fast_math_is_right_with_it(kernel: str) -> None:
    program, compute = RIGHT[kernel]
    assert judged(program, compute, fast_math=True) == ["", ""]
