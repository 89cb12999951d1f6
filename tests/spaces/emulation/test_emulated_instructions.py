"""The emulated device does what a device did with the programs of instructions; or, where none has
run one, what its definition demands, which was written apart from the emulation."""

from __future__ import annotations

import json

import pytest

from benchmarks.gpu.instructions.confirmed import read_result
from benchmarks.gpu.instructions.questions import special, sums
from benchmarks.gpu.instructions.questions.question import Question
from benchmarks.gpu.instructions.saved import plain, reference_of
from tests.spaces.emulation.instructions.catalogue import programs
from tests.spaces.emulation.instructions.judge import is_right, judge
from tests.spaces.emulation.instructions.program import run_on
from tests.spaces.emulation.run_program import run_emulated

pytestmark = pytest.mark.tvm
PROGRAMS = programs()
_ASSUMED = "groups of 32, 13 bits, rz, exponent of factors, sums of 14 bits"
"""Of floats of 8 bits."""
_EACH = 8
"""One program in so many runs in `make test`, the others in `make slow`: a program costs a quarter
of a second."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if number % _EACH == 0 else pytest.mark.long)
        for number, name in enumerate(PROGRAMS)
    ],
)
def test_an_instruction_does_what_a_device_did(name: str) -> None:
    program = PROGRAMS[name]
    verdict = judge(program, run_on(run_emulated, program), reference_of(program))
    assert is_right(verdict), verdict


@pytest.mark.parametrize("question", sums.questions(), ids=lambda q: q.program.name)
def test_products_are_summed_as_an_h100_sums_them(question: Question) -> None:
    """`ask.sum` of the file of answers; where it has none yet, as is assumed."""
    asked = question.program
    answer = question.answer(asked.inputs(), run_on(run_emulated, asked))
    known = read_result()["questions"].get(asked.name)
    if known is None:
        assert answer["best"][_ASSUMED] == answer["elements"]
        assert list(answer["best"].values()).count(answer["elements"]) == 1
    else:
        assert answer["best"] == known["best"]


@pytest.mark.parametrize("question", special.questions(), ids=lambda q: q.program.name)
def test_special_values_are_what_an_h100_makes_of_them(question: Question) -> None:
    asked = question.program
    answer = question.answer(asked.inputs(), run_on(run_emulated, asked))
    known = read_result()["questions"][asked.name]
    assert json.loads(json.dumps(plain(answer))) == {k: v for k, v in known.items() if k != "asks"}
