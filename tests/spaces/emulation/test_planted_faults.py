"""The emulated device runs right programs right, and catches each planted fault."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.spaces.emulation.planted_faults import FAULTS, Fault, Kind, Program
from tests.spaces.emulation.programs import faulty, made

pytestmark = pytest.mark.tvm
_SEEDS = (0, 1, 2)


@pytest.mark.parametrize("program", Program)
def test_a_right_program_is_right_in_every_order_of_its_threads(program: Program) -> None:
    right = made(program)
    for seed in _SEEDS:
        assert right.is_right(right.output(seed=seed)), seed


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.edit)
def test_a_planted_fault_is_caught_in_every_order_of_its_threads(fault: Fault) -> None:
    program, edit = faulty(fault.program, fault.edit)
    for seed in _SEEDS:
        try:
            output = program.output(edit, seed=seed)
        except (RuntimeError, TimeoutError):
            continue
        assert not program.is_right(output), seed


def test_two_faults_of_each_kind_are_planted() -> None:
    assert Counter(fault.kind for fault in FAULTS) == dict.fromkeys(Kind, 2)
