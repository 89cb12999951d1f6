"""A user's function that makes programs from knobs spans a space of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from actors.build_child import BuildChild
from spaces.codegen.artifact import build_artifact
from spaces.design_space.declared.fit import fit
from spaces.design_space.declared.spaces import find_declared
from spaces.design_space.realize import realize, trace_text
from spaces.design_space.task_space import TaskSpace
from spaces.ir.schedules import InvalidCandidate, code_hash
from tests.contracts.programs import gemm_task
from tuner.candidate import Candidate, CandidateKind, Draft, knobs_of
from tuner.errors import UsageError
from tuner.record import Status
from tuner.space import program
from tuner.task import SpaceSource, Task

pytestmark = pytest.mark.tvm

FILE = """
from tvm import te
from tvm.s_tir import Schedule
from tuner import space

def small(rows, columns):
    return rows * columns <= 64

@space.program(knobs={"rows": (1, 2, 4, 8), "columns": (8, 16, 32)}, where=small)
def in_steps(program, rows, columns):
    sch = Schedule(program)
    i, j, k = sch.get_loops(sch.get_sblock("C"))
    i0, i1 = sch.split(i, [None, rows])
    j0, j1 = sch.split(j, [None, columns])
    sch.reorder(i0, j0, k, i1, j1)
    sch.vectorize(j1)
    return sch.mod["main"]

@space.program(knobs={})
def as_it_is(program):
    return program

@space.program(knobs={"rows": (1, 2)})
def of_other_knobs(program, tiles):
    return program

@space.program(knobs={"rows": (1, 2)})
def of_other_parameters(program, rows):
    x = te.placeholder((4,), name="x")
    return te.create_prim_func([x, te.compute((4,), lambda i: x[i], "y")])

@space.program(knobs={"rows": (1, 2)})
def of_nothing(program, rows):
    pass

@space.program(knobs={"rows": (1, 2)}, where=lambda rows: rows > 2)
def never(program, rows):
    return program
"""


def source(name: str) -> SpaceSource:
    return SpaceSource("theirs.py", FILE, name)


@pytest.fixture(scope="module")
def task() -> Task:
    bare, mine = gemm_task(), source("in_steps")
    found = fit(mine, [bare])
    assert found.error == ""
    return replace(bare, space=replace(mine, parts=found.parts[bare.key]))


def drawn(task: Task, count: int, parent: Candidate | None = None) -> list[Candidate]:
    space = TaskSpace(task)
    drafts = [Draft(task.key, n, 7 * n, parent) for n in range(1, count + 1)]
    return [space.realize_draft(draft).candidate for draft in drafts]


def settings(candidates: list[Candidate]) -> list[Mapping[str, int]]:
    return [knobs_of(candidate) or {} for candidate in candidates]


def test_its_points_are_programs_of_settings_for_which_the_predicate_holds(task: Task) -> None:
    found = drawn(task, 30)
    assert {candidate.kind for candidate in found} == {CandidateKind.KNOBS}
    seen = {tuple(sorted(knobs.items())) for knobs in settings(found)}
    assert len(seen) >= 6
    assert all(knobs["rows"] * knobs["columns"] <= 64 for knobs in settings(found))
    assert found == drawn(task, 30), "a draft gives the same point in any process"


def test_few_settings_come_to_an_end(task: Task) -> None:
    with pytest.raises(InvalidCandidate, match="all schedules of the declared spaces"):
        drawn(task, 60)


def test_a_mutation_is_near_its_parent_and_never_it(task: Task) -> None:
    (parent,) = drawn(task, 1)
    changed = drawn(task, 20, parent)
    assert parent not in changed
    one_knob = [
        sum(knobs[name] != value for name, value in settings([parent])[0].items()) == 1
        for knobs in settings(changed)
    ]
    assert sum(one_knob) > len(one_knob) / 2


def test_a_point_is_made_anew_from_its_setting(task: Task) -> None:
    candidate = drawn(task, 1)[0]
    first, again = realize(task, candidate), realize(task, candidate)
    assert code_hash(first.mod) == code_hash(again.mod)
    assert code_hash(first.mod) != code_hash(realize(task, Candidate(
        CandidateKind.TRACE, "[[],[]]", "default")).mod)  # fmt: skip
    assert not first.trace.insts
    assert build_artifact(first.mod, task.target)


def test_what_a_builder_kept_of_it_needs_the_function_no_more(task: Task) -> None:
    candidate = drawn(task, 1)[0]
    made = realize(task, candidate).mod
    child = BuildChild()
    child.learn(task)
    answer = child.build(task.key, candidate)
    assert answer.status is Status.OK, answer.error
    kept = answer.written.of(candidate)
    again = realize(replace(task, space=None), kept)
    assert code_hash(again.mod) == code_hash(made) == answer.written.code_hash
    assert kept.key == candidate.key
    assert not kept.is_schedule


def test_what_it_is_shows_the_setting_and_the_program(task: Task) -> None:
    candidate = drawn(task, 1)[0]
    text = trace_text(task, candidate)
    assert candidate.payload in text.splitlines()[0]
    assert "T.sblock" in text


def test_a_function_without_knobs_is_one_point() -> None:
    bare, mine = gemm_task(), source("as_it_is")
    parts = fit(mine, [bare]).parts
    (space,) = find_declared(replace(bare, space=replace(mine, parts=parts[bare.key])))
    assert space.points == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("of_other_knobs", "of_other_knobs takes tiles; its knobs are rows"),
        ("of_other_parameters", "of_other_parameters takes float32[4], float32[4]"),
        ("of_nothing", "of_nothing returns a NoneType, and no PrimFunc"),
        ("never", "never gives no schedule"),
    ],
)
def test_a_function_that_cannot_be_used_is_refused_in_a_line(name: str, words: str) -> None:
    error = fit(source(name), [gemm_task()]).error
    assert words in error
    assert "\n" not in error


@pytest.mark.parametrize("values", [(), ("a",), (True,)])
def test_a_knob_has_integers_for_values(values: Any) -> None:
    with pytest.raises(UsageError, match="tile has to have values"):
        program(lambda given, tile: given, knobs={"tile": values})
