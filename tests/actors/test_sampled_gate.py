"""What is found of a large program's faults by some elements, and what by comparing kernels.

The faults are those that the whole reference finds (`tests/actors/test_gate.py`). Here 64 elements
of each output are known, and then the outputs of a kernel that was right in those.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.check.choice import reference_of
from spaces.check.sampled_case import SampledCase
from spaces.devices.checker import how_wrong
from tests.actors.gate_programs import Array, Held, known, module_of
from tests.actors.test_gate import FAULTS, RIGHT

pytestmark = [pytest.mark.tvm, pytest.mark.optimised]

ONLY_BY_COMPARISON = {
    "abs-of-the-least-saturated",
    "dequantise-two-steps-somewhere",
    "layer-two-steps-somewhere",
}
"""Faults in so few elements that none of them is among those that are known. A kernel with one of
these is right to the gate if it is the first of its task, until another one comes."""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spaces.check.sampled_program._MOST", (64,))


def cases_of(program: str) -> tuple[SampledCase, ...]:
    found = reference_of(module_of(program), program, quick_steps=0).cases
    assert all(isinstance(case, SampledCase) for case in found)
    return found  # type: ignore[return-value]


def output(program: str, number: int, compute: Callable[..., Array]) -> tuple[list[Array], Array]:
    """A kernel's inputs and output on a draw."""
    whole = known(program).cases[number]
    last = len(whole.arguments) - 1
    inputs = [whole.fresh(i) for i in range(last)]
    want = whole.outputs[last]
    with np.errstate(all="ignore"):
        return inputs, np.ascontiguousarray(compute(*inputs, want.copy()).astype(want.dtype))


def verdicts(
    program: str, cases: tuple[SampledCase, ...], compute: Callable[..., Array], by: bytes
) -> list[str]:
    """What the gate says of a kernel, which is kept where it is the first right one."""
    said = []
    for number, case in enumerate(cases):
        inputs, got = output(program, number, compute)
        said.append(how_wrong(case, [Held(a) for a in (*inputs, got)]))
        if not said[-1] and case.whole is None:
            case.keep(by, {len(inputs): got})
    return said


def as_wanted(*arrays: Array) -> Array:
    return arrays[-1]


@pytest.mark.parametrize("fault", [*FAULTS])
def test_a_fault_is_found_by_some_elements_or_beside_another_kernel(fault: str) -> None:
    program, compute = FAULTS[fault]
    alone = verdicts(program, cases_of(program), compute, b"faulty")
    assert (alone == ["", ""]) == (fault in ONLY_BY_COMPARISON)
    cases = cases_of(program)
    assert verdicts(program, cases, as_wanted, b"right") == ["", ""]
    assert verdicts(program, cases, compute, b"faulty") != ["", ""]
    assert all(case.is_by(b"right") for case in cases)


@pytest.mark.parametrize("fault", sorted(ONLY_BY_COMPARISON))
def test_the_first_kernel_is_no_longer_right_when_one_comes_that_is(fault: str) -> None:
    program, compute = FAULTS[fault]
    cases = cases_of(program)
    assert verdicts(program, cases, compute, b"faulty") == ["", ""]
    assert verdicts(program, cases, as_wanted, b"right") == ["", ""]
    assert {by for case in cases for by in case.take_disproved()} == {b"faulty"}
    for case in cases:
        case.forget(b"faulty")
    assert verdicts(program, cases, as_wanted, b"right") == ["", ""]
    assert verdicts(program, cases, compute, b"faulty") != ["", ""]


@pytest.mark.parametrize("kernel", [*RIGHT])
def test_right_kernels_agree_whichever_comes_first(kernel: str) -> None:
    program, compute = RIGHT[kernel]
    for first, second in ((as_wanted, compute), (compute, as_wanted)):
        cases = cases_of(program)
        assert verdicts(program, cases, first, b"first") == ["", ""]
        assert verdicts(program, cases, second, b"second") == ["", ""]
        assert all(case.is_by(b"first") for case in cases)


def test_elements_that_no_kernel_may_get_wrong_are_found_in_a_large_output() -> None:
    """Ends of the axes, of which a tile that is cut off gets one wrong."""
    from tests.actors.test_gate import without_one, without_row

    faults: dict[str, Callable[..., Any]] = {
        "first row": without_row(0),
        "last row": without_row(-1),
        "last element": without_one,
    }
    for name, compute in faults.items():
        assert verdicts("f32", cases_of("f32"), compute, b"faulty") != ["", ""], name


def test_the_docs_say_how_many_are_found_by_what() -> None:
    text = " ".join((Path(__file__).parents[2] / "docs" / "reference.md").read_text().split())
    rest = len(ONLY_BY_COMPARISON)
    assert f"{len(FAULTS) - rest} of the {len(FAULTS)};" in text
    assert f"the other {rest};" in text
