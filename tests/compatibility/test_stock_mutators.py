"""Mutations change in our candidates what MetaSchedule's mutators change in its traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import Any

import pytest

from spaces.design_space.declared.rules import rules_of
from spaces.design_space.trace_space import TraceSpace
from spaces.ir.schedules import canonical_payload, new_schedule, replay, task_module
from tests.compatibility import test_stock_rules as rules
from tests.compatibility.stock_programs import (
    CUDA,
    LLVM,
    drawn,
    outline,
    post_order,
    redrawn,
    register,
    stock_context,
    stock_sketches,
    task,
)
from tuner import space
from tuner.candidate import Candidate, CandidateKind
from tuner.space.parts import Part
from tuner.task import Task

pytestmark = [pytest.mark.tvm]

Made = Callable[[], list[Any]]
Change = tuple[str, str]
"""The kind of an instruction, and its decision or its annotation."""
ENOUGH = 50
long = pytest.mark.long


def mutator(name: str, *arguments: Any) -> Callable[[], dict[Any, float]]:
    """One mutator by its name, with all the weight, made anew at each call."""

    def made() -> dict[Any, float]:
        from tvm.s_tir.meta_schedule import mutator

        return {getattr(mutator, name)(*arguments): 1.0}

    return made


def only(of: Task, part: Part) -> TraceSpace:
    """Our space, whose mutations are those of its mutators and no draws besides."""
    declared = rules_of(part, "declared:tested", task_module(of.module), of.target)
    return TraceSpace(of, replace(declared, redraws=False))


def contents(trace: Any) -> list[Change]:
    """What each instruction of a trace decides or annotates."""
    from tvm.tirx import IntImm

    found = []
    for instruction in trace.simplified(True).insts:
        kind, value = str(instruction.kind.name), trace.get_decision(instruction)
        if kind == "Annotate" and isinstance(instruction.inputs[1], IntImm | int):
            value = instruction.inputs[1]  # others are decisions of instructions before it
        found.append((kind, str(value)))
    return found


def changes(before: Any, after: Any) -> set[Change]:
    """What is another in the second trace."""
    pairs = zip(contents(before), contents(after), strict=True)
    return {new for old, new in pairs if old != new}


def stock_changes(of: Task, made: Callable[[], dict[Any, float]], trace: Any) -> Iterator[Any]:
    """What MetaSchedule's mutator makes of a trace, again and again."""
    context = stock_context(of, post_order([], [], made()))
    ((found, _),) = context.space_generator.mutator_probs.items()
    for _ in range(ENOUGH):
        yield found.apply(trace)


def our_changes(of: Task, mine: TraceSpace, trace: Any) -> Iterator[Any]:
    """What our space makes of the same trace."""
    parent = Candidate(CandidateKind.TRACE, canonical_payload(trace), mine.name)
    for candidate in drawn(of, mine, ENOUGH, parent):
        yield replay(task_module(of.module), candidate.payload).trace


TILED_LOOPS = rules.all_of(rules.TILES, rules.UNROLL)
MUTATED: list[tuple[str, Callable[[], dict[Any, float]], Made, str, str, str]] = [
    # mutator, rules, program, target, what it changes
    ("tiles", mutator("MutateTileSize"), rules.TILES, "matmul_deep", LLVM, "SamplePerfectTile"),
    ("tiles-gpu", mutator("MutateTileSize"), rules.TILES_GPU, "matmul", CUDA, "SamplePerfectTile"),
    ("unroll", mutator("MutateUnroll"), rules.UNROLL, "matmul", LLVM, "SampleCategorical"),
    ("unroll-gpu", mutator("MutateUnroll"), rules.UNROLL_GPU, "matmul", CUDA, "SampleCategorical"),
    ("parallel", mutator("MutateParallel", 64), TILED_LOOPS, "matmul_deep", LLVM, "Annotate"),
    (
        "threads",
        mutator("MutateThreadBinding"),
        rules.BIND,
        "elementwise",
        CUDA,
        "SampleCategorical",
    ),
    (
        "place",
        mutator("MutateComputeLocation"),
        rules.ANYWHERE,
        "two_steps",
        LLVM,
        "SampleComputeLocation",
    ),
]
"""Mutators, rules whose decisions they change, and the kind of instruction that these are of."""

mutated = pytest.mark.parametrize(
    ("made", "with_rules", "program", "target", "kind"),
    [
        pytest.param(*case, id=name, marks=(long,) if name.endswith("-gpu") else ())
        for name, *case in MUTATED
    ],
)


@pytest.fixture(scope="module", autouse=True)
def intrinsics() -> None:
    register("cuda")


def parent_of(of: Task, made: Made) -> Any:
    """The trace of a schedule with decisions."""
    sketch = stock_sketches(of, post_order(made()))[0]
    found = next(filter(None, (redrawn(of, sketch, seed) for seed in range(20))))
    return found.trace.simplified(True)


@mutated
def test_a_mutator_changes_instructions_of_one_kind_in_both(
    made: Callable[[], dict[Any, float]], with_rules: Made, program: str, target: str, kind: str
) -> None:
    of = task(program, target)
    mine = only(of, space.rules(*with_rules(), stock=False, postprocs=list, mutators=made))
    parent = parent_of(of, with_rules)
    ours = [*our_changes(of, mine, parent)]
    theirs = [new for new in stock_changes(of, made, parent) if new is not None]
    kinds = {name for new in theirs for name, _ in changes(parent, new)}
    assert kinds >= {kind}
    assert {name for new in ours for name, _ in changes(parent, new)} == kinds
    assert {outline(new) == outline(parent) for new in (*ours, *theirs)} == {kind != "Annotate"}


@pytest.mark.parametrize(
    "case",
    ["unroll", *(pytest.param(name, marks=long) for name in ("parallel", "threads", "place"))],
)
def test_both_reach_the_same_values_from_a_point(case: str) -> None:
    _, made, with_rules, program, target, _ = next(each for each in MUTATED if each[0] == case)
    of = task(program, target)
    mine = only(of, space.rules(*with_rules(), stock=False, postprocs=list, mutators=made))
    parent = parent_of(of, with_rules)
    ours = set().union(*(changes(parent, new) for new in our_changes(of, mine, parent)))
    met, waiting = {str(contents(parent))}, [parent]
    theirs: set[Change] = set()
    while waiting:  # one of ours may be several of theirs
        for new in stock_changes(of, made, waiting.pop()):
            if new is not None and str(contents(new)) not in met:
                met.add(str(contents(new)))
                waiting.append(new)
                theirs |= changes(parent, new)
    assert theirs
    assert ours == theirs


def test_mutated_tiles_divide_their_loops_in_both() -> None:
    of = task("matmul_deep", LLVM)
    made = mutator("MutateTileSize")
    mine = only(of, space.rules(*rules.TILES(), stock=False, postprocs=list, mutators=made))
    parent = parent_of(of, rules.TILES)
    for found in (our_changes(of, mine, parent), stock_changes(of, made, parent)):
        tiles = {
            tuple(map(int, trace.get_decision(instruction)))
            for trace in found
            for instruction in trace.insts
            if str(instruction.kind.name) == "SamplePerfectTile"
        }
        assert len(tiles) > 5
        assert {prod(tile) for tile in tiles} == {4, 512}


def test_a_single_choice_is_not_mutated_in_either() -> None:
    of = task("matmul", LLVM)
    made = mutator("MutateTileSize")

    def one_choice(sch: Any) -> None:
        rows, *_ = sch.get_loops(sch.get_sblock("C"))
        sch.split(rows, [None, sch.sample_categorical([4], [1.0])])

    schedule = new_schedule(task_module(of.module))
    one_choice(schedule)
    assert {*stock_changes(of, made, schedule.trace)} == {None}
    declared = space.rules(
        space.rule(lambda sch, block: one_choice(sch), name="one"),
        stock=False,
        postprocs=list,
        mutators=made,
    )
    assert [*our_changes(of, only(of, declared), schedule.trace)] == []


DEFAULTS = [
    ("matmul", LLVM),
    *(pytest.param(*on, marks=long) for on in (("SFM", LLVM), ("GMM", CUDA), ("SFM", CUDA))),
    ("elementwise", CUDA),
]


@pytest.mark.parametrize(("program", "target"), DEFAULTS)
def test_the_default_mutators_change_the_same_kinds(program: str, target: str) -> None:
    of = task(program, target)
    mine = TraceSpace(of)
    context = stock_context(of, "post-order-apply")
    parent = next(drawn(of, mine, 50))
    trace = replay(task_module(of.module), parent.payload).trace
    ours = {
        name
        for candidate in drawn(of, mine, 40, parent)
        for name, _ in changes(trace, replay(task_module(of.module), candidate.payload).trace)
    }
    theirs = {
        name
        for each in context.space_generator.mutator_probs
        for _ in range(20)
        if (new := each.apply(trace)) is not None
        for name, _ in changes(trace, new)
    }
    assert ours == theirs


@pytest.mark.parametrize(("program", "target"), DEFAULTS)
def test_the_default_mutators_are_as_likely(program: str, target: str) -> None:
    from spaces.design_space.schedule_rules import task_rules

    of = task(program, target)
    theirs = stock_context(of, "post-order-apply").space_generator.mutator_probs
    ours = task_rules(of.module, of.target).mutators
    assert {type(each).__name__: weight for each, weight in ours} == {
        type(each).__name__: pytest.approx(float(weight)) for each, weight in theirs.items()
    }


def test_a_mutator_in_python_serves_both() -> None:
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.mutator import PyMutator

    @derived_object
    class Halved(PyMutator):  # type: ignore[misc]
        """Turns the last choice down."""

        def _initialize_with_tune_context(self, context: Any) -> None:
            pass

        def apply(self, trace: Any, seed: Any = None) -> Any:
            last = [i for i in trace.insts if str(i.kind.name) == "SampleCategorical"][-1]
            place = int(trace.get_decision(last))
            return trace.with_decision(last, place // 2, True) if place else None

        def clone(self) -> Any:
            return Halved()

    of = task("matmul", LLVM)
    made: Callable[[], dict[Any, float]] = lambda: {Halved(): 1.0}  # noqa: E731
    mine = only(of, space.rules(*rules.UNROLL(), stock=False, postprocs=list, mutators=made))
    (sketch,) = stock_sketches(of, post_order(rules.UNROLL()))
    schedule = next(
        found
        for seed in range(50)
        if (found := redrawn(of, sketch, seed))
        and ("SampleCategorical", "3") in contents(found.trace)
    )
    parent = schedule.trace.simplified(True)
    theirs = set().union(*(changes(parent, new) for new in stock_changes(of, made, parent) if new))
    ours = set().union(*(changes(parent, new) for new in our_changes(of, mine, parent)))
    assert theirs == {("SampleCategorical", "1")}
    assert ours == {("SampleCategorical", "1"), ("SampleCategorical", "0")}, "once, or twice"
