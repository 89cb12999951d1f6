"""What a user's file declares is searched: tried on tasks first, then drawn and written."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from spaces.design_space.declared.fit import fit
from spaces.design_space.declared.spaces import find_declared
from spaces.design_space.realize import realize
from spaces.design_space.task_space import TaskSpace
from spaces.design_space.trace_space import TraceSpace
from spaces.ir.schedules import InvalidCandidate, code_hash
from spaces.targets.target import parse_target
from tests.contracts.programs import gemm_task
from tests.spaces.after_pass import modules_after
from tuner.candidate import Candidate, Draft, family
from tuner.task import SpaceSource, Task

pytestmark = pytest.mark.tvm

FILE = """
from tuner import space

@space.manual
def by_hand(sch):
    i, j, k = sch.get_loops(sch.get_sblock("C"))
    i0, i1 = sch.split(i, [None, 4])
    sch.reorder(i0, k, i1, j)
    sch.vectorize(j)

@space.template
def tiled(sch):
    i, j, k = sch.get_loops(sch.get_sblock("C"))
    i0, i1 = sch.split(i, sch.sample_perfect_tile(i, 2, 16))
    j0, j1 = sch.split(j, sch.sample_perfect_tile(j, 2, 64))
    sch.reorder(i0, j0, k, i1, j1)
    sch.vectorize(j1)
    sch.parallel(i0)

@space.rule(blocks="C")
def two_ways(sch, block):
    other = sch.copy()
    other.annotate(block, "tested_way", 1)
    return [sch, other]

@space.rule(blocks="C", annotation="nobody has it")
def never(sch, block):
    raise AssertionError("no block has this annotation")
"""


def source(*lines: str, name: str = "SPACE") -> SpaceSource:
    return SpaceSource("theirs.py", FILE + "\n".join(lines) + "\n", name)


@pytest.fixture(scope="module")
def bare() -> Task:
    return gemm_task()


def with_space(task: Task, *lines: str) -> Task:
    """The task with the file's space, as a run gives it to its workers."""
    mine = source(*lines)
    found = fit(mine, [task])
    assert found.error == ""
    return replace(task, space=replace(mine, parts=found.parts[task.key]))


def drawn(task: Task, count: int, parent: Candidate | None = None) -> list[Candidate]:
    space, found = TaskSpace(task), []
    for number in range(1, count + 1):
        try:
            found.append(space.realize_draft(Draft(task.key, number, 5 * number, parent)).candidate)
        except InvalidCandidate:
            continue
    return found


def kinds(candidates: list[Candidate]) -> Counter[str]:
    return Counter(c.space.partition("@")[0] for c in candidates)


def test_the_first_drafts_are_one_of_each_declared_space(bare: Task) -> None:
    task = with_space(
        bare, "SPACE = space.union(by_hand, tiled, space.rules(two_ways), space.ours())"
    )
    assert [*kinds(drawn(task, 3))] == ["declared:by_hand", "declared:tiled", "declared:rules"]
    later = kinds(drawn(task, 80)[3:])
    assert later["kernel:contraction-1.0"] > 5
    assert later["declared:tiled"] > 5
    assert later["declared:by_hand"] < 15, "its one point is known"


def test_only_what_is_declared_is_searched(bare: Task) -> None:
    task = with_space(bare, "SPACE = tiled")
    assert {*kinds(drawn(task, 40))} == {"declared:tiled"}


def test_learned_weights_turn_drafts_away(bare: Task) -> None:
    task = with_space(bare, "SPACE = space.union(tiled, space.ours())")
    (mine,) = find_declared(task)
    space = TaskSpace(task)
    weights = ((mine.name, 0.02),)
    drafts = [Draft(task.key, n, 5 * n, weights=weights) for n in range(2, 80)]
    found = kinds([space.realize_draft(draft).candidate for draft in drafts])
    assert found["declared:tiled"] < 8 < found.total() - 8


def test_a_schedule_by_hand_is_one_point_and_then_there_is_nothing(bare: Task) -> None:
    task = with_space(bare, "SPACE = by_hand")
    found = drawn(task, 200)
    assert len({c.key for c in found}) == 1
    assert len(found) < 10, "drafts say soon that there is no more"


@pytest.mark.parametrize(
    "what", ["by_hand", "tiled", "space.rules(two_ways)", "space.rules(stock=True)"]
)
def test_what_is_drawn_is_written_again_from_the_text_alone(bare: Task, what: str) -> None:
    task = with_space(bare, f"SPACE = {what}")
    space = TaskSpace(task)
    for number in range(1, 6):
        try:
            point = space.realize_draft(Draft(task.key, number, 11 * number))
        except InvalidCandidate:
            continue
        again = TaskSpace(task).realize_draft(Draft(task.key, number, 11 * number))
        assert again.candidate == point.candidate, "the same draft, the same point"
        assert code_hash(realize(task, point.candidate).mod) == point.code_hash


def test_a_written_candidate_needs_its_file_no_more(bare: Task) -> None:
    from actors.build_child import BuildChild
    from spaces.intrinsics.registration import stub_intrinsics

    stub_intrinsics()
    task = with_space(bare, "SPACE = space.rules(two_ways)")
    child = BuildChild()
    child.learn(task)
    candidate = next(c for c in drawn(task, 20) if family(c.space) == "declared")
    built = child.build(task.key, candidate)
    assert built.error == ""
    written = built.written.of(candidate)
    assert code_hash(realize(bare, written).mod) == built.written.code_hash
    with pytest.raises(InvalidCandidate, match="has no space declared:rules"):
        realize(bare, candidate)


def test_mutations_stay_in_their_space_and_change_something(bare: Task) -> None:
    task = with_space(bare, "SPACE = space.union(tiled, space.ours())")
    parent = drawn(task, 1)[0]
    children = drawn(task, 20, parent)
    assert {*kinds(children)} == {"declared:tiled"}
    assert len({c.key for c in children} - {parent.key}) > 5


def test_categories_are_drawn_anew_where_tvm_has_no_mutator(bare: Task) -> None:
    task = with_space(
        bare,
        "@space.template",
        "def steps(sch):",
        "    i, j, k = sch.get_loops(sch.get_sblock('C'))",
        "    n = sch.sample_categorical([1, 2, 4, 8, 16, 32], [1 / 6] * 6)",
        "    sch.split(k, [None, n])",
        "SPACE = steps",
    )
    parent = drawn(task, 1)[0]
    assert len({c.key for c in drawn(task, 40, parent)}) >= 4


OPAQUE = [
    "@space.template(opaque=True)",
    "def looks(sch):",
    "    i, j, k = sch.get_loops(sch.get_sblock('C'))",
    "    if int(sch.get(sch.sample_categorical([0, 1], [0.5, 0.5]))):",
    "        i0, i1 = sch.split(i, sch.sample_perfect_tile(i, 2, 16))",
    "        if int(sch.get(i1).extent) > 8:",
    "            return []",
    "        sch.reorder(i0, j, k, i1)",
    "    else:",
    "        sch.split(k, [None, sch.sample_categorical([2, 4, 8, 16], [0.25] * 4)])",
    "SPACE = space.union(looks, space.ours())",
]


def test_an_opaque_function_may_look_at_what_it_drew(bare: Task) -> None:
    task = with_space(bare, *OPAQUE)
    space = TaskSpace(task)
    points, refusals = [], 0
    for number in range(40):
        draft = Draft(task.key, 99, number, weights=(("kernel:x", 0.001), ("rules:x", 0.001)))
        try:
            points.append(space.realize_draft(draft))
        except InvalidCandidate as error:
            refusals += "refused what was drawn" in str(error)
    assert refusals, "tiles above 8 are refused"
    assert len({p.code_hash for p in points}) >= 5
    for point in points:
        assert code_hash(realize(task, point.candidate).mod) == point.code_hash


BRANCHING = [
    "@space.template",
    "def branches(sch):",
    "    i, j, k = sch.get_loops(sch.get_sblock('C'))",
    "    tiles = sch.sample_perfect_tile(i, 2, 16)",
    "    outer, inner = sch.split(i, tiles)",
    "    if int(sch.get(tiles[1])) > 2:",  # what a template's one run decides once for all
    "        sch.unroll(inner)",
    "SPACE = branches",
]


def test_a_template_may_be_run_anew_for_each_sample(bare: Task) -> None:
    """The strategy replay-function: control flow depends on what was drawn."""
    task = with_space(bare, *BRANCHING)
    (space,) = find_declared(task)
    drafts = [Draft(bare.key, number, number, anew=True) for number in range(24)]
    points = [space.realize_draft(draft) for draft in drafts]
    unrolled = ["unroll" in str(point.schedule.mod) for point in points]
    tiles = [loops_of(task, point.candidate)[1] for point in points]
    assert len(set(unrolled)) == 2
    assert unrolled == [rows > 2 for rows in tiles]
    again = space.realize_draft(drafts[5])
    assert again.candidate == points[5].candidate
    assert code_hash(realize(task, again.candidate).mod) == again.code_hash


def test_a_mutation_of_an_opaque_function_keeps_most_of_what_was_drawn(bare: Task) -> None:
    task = with_space(bare, *OPAQUE)
    parent = drawn(task, 1)[0]
    assert family(parent.space) == "declared"
    children = drawn(task, 60, parent)
    assert {*kinds(children)} == {"declared:looks"}
    kept = [c for c in children if c.payload == parent.payload]
    assert len({c.key for c in children}) >= 4
    assert len(kept) < len(children)
    again = drawn(task, 60, parent)
    assert [c.key for c in again] == [c.key for c in children]


CONSTRAINED = [
    "@space.template(where=lambda rows, steps: rows[1] * steps <= 16)",
    "def small(sch):",
    "    i, j, k = sch.get_loops(sch.get_sblock('C'))",
    "    rows = space.named('rows', sch.sample_perfect_tile(i, 2, 64))",
    "    i0, i1 = sch.split(i, rows)",
    "    steps = space.named('steps', sch.sample_categorical([1, 2, 4, 8], [0.25] * 4))",
    "    sch.split(k, [None, steps])",
    "    sch.split(j, sch.sample_perfect_tile(j, 2, 64))",
    "SPACE = small",
]


def test_a_constraint_holds_for_all_that_is_drawn(bare: Task) -> None:
    def product(candidate: Candidate) -> int:
        instructions, decisions = json.loads(candidate.payload)
        known = dict(decisions)
        drawn = [(i, known[n]) for n, i in enumerate(instructions) if i[0].startswith("Sample")]
        (_, rows), (steps, place), _ = drawn
        return int(rows[1] * steps[2][0][place])

    task = with_space(bare, *CONSTRAINED)
    fresh = drawn(task, 60)
    children = drawn(task, 60, fresh[0])
    assert len(fresh) == len(children) == 60, "draws are repeated until they are allowed"
    assert all(product(c) <= 16 for c in (*fresh, *children))
    free = [line.replace("<= 16", "<= 512") for line in CONSTRAINED]
    assert any(product(c) > 16 for c in drawn(with_space(bare, *free), 60))


def test_a_constraint_that_nothing_satisfies_is_an_invalid_draft(bare: Task) -> None:
    mine = source(*[line.replace("<= 16", "<= 0") for line in CONSTRAINED])
    task = replace(bare, space=replace(mine, parts=("small",)))
    with pytest.raises(InvalidCandidate, match="refused 32 draws in a row"):
        TaskSpace(task).realize_draft(Draft(task.key, 1, 1))


def test_a_rule_applies_to_its_blocks_beside_tvms_own(bare: Task) -> None:
    def sketches(what: str) -> int:
        (space,) = find_declared(with_space(bare, f"SPACE = {what}"))
        assert isinstance(space, TraceSpace)
        return len(space.sketches)

    assert sketches("space.rules(two_ways, stock=False)") == 2
    assert sketches("space.rules(two_ways, never)") == 2 * sketches("space.rules(stock=True)")


def test_stock_objects_are_taken_as_they_are(bare: Task) -> None:
    task = with_space(
        bare,
        "from tvm.s_tir import meta_schedule as ms",
        "SPACE = space.union(",
        "    space.generator(lambda: ms.space_generator.PostOrderApply(",
        "        sch_rules='llvm', postprocs='llvm', mutator_probs='llvm'), name='made'),",
        "    space.generator(",
        "        ms.space_generator.ScheduleFn(lambda sch: None, [], [], {}), name='fn'),",
        "    space.rules(",
        "        lambda: ms.schedule_rule.RandomComputeLocation(), stock=False, name='one'),",
        ")",
    )
    assert [s.name.partition("@")[0] for s in find_declared(task)] == [
        "declared:made",
        "declared:fn",
        "declared:one",
    ]
    assert {*kinds(drawn(task, 12))} >= {"declared:made", "declared:fn"}


def refused(task: Task, *lines: str, name: str = "SPACE") -> str:
    found = fit(source(*lines, name=name), [task])
    assert found.parts == {}
    assert "\n" not in found.error
    return found.error


LINES = len(FILE.splitlines())


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["SPACE = (", "", ""], f"theirs.py:{LINES + 1}: '(' was never closed"),
        (["SPACE = nothing"], f"theirs.py:{LINES + 1}: NameError: name 'nothing' is not defined"),
        (
            ["SPACE = space.template(tiled.function, where=lambda rows: True)"],
            "where: rows is named by nothing",
        ),
        (["MINE = tiled"], "theirs.py has no SPACE: name another as theirs.py:NAME"),
        (["SPACE = None"], "theirs.py: SPACE: None is no space"),
        (
            ["@space.manual", "def SPACE(sch):", "    sch.get_sblock('nowhere')"],
            f"theirs.py:{LINES + 3}: ScheduleError: Cannot find a block with the specified name",
        ),
        (["@space.manual", "def SPACE(sch):", "    return 3"], "returned int"),
        (
            ["SPACE = space.manual(tiled.function)"],
            "draws decisions: declare it with space.template",
        ),
        (["SPACE = space.template(tiled.function, tasks='conv*')"], "no task is called conv*"),
        (["import os", "SPACE = os._exit"], "theirs.py: SPACE: "),
        (["raise SystemExit(0)"], f"theirs.py:{LINES + 1}: SystemExit"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_line_with_its_place(
    bare: Task, lines: list[str], said: str
) -> None:
    assert said in refused(bare, *lines)


def test_a_rule_that_raises_is_named_with_its_line(bare: Task) -> None:
    error = refused(
        bare,
        "@space.rule(blocks='C')",
        "def wrong(sch, block):",
        "    return sch.get_loops(block)[17]",
        "SPACE = wrong",
    )
    assert error.startswith(f"theirs.py:{LINES + 3}: IndexError")


def test_a_rule_that_never_applies_is_told(bare: Task) -> None:
    found = fit(source("SPACE = space.rules(two_ways, never)"), [bare])
    assert found.error == ""
    assert found.notes == (
        "theirs.py:26: rules: no block is one of rule never's (C with the annotation nobody has "
        "it); there are C",
    )


def test_rules_of_which_none_applies_are_refused_where_nothing_else_is_searched(bare: Task) -> None:
    rule = ["@space.rule(blocks='conv*')", "def lost(sch, block):", "    return sch"]
    error = refused(bare, *rule, "SPACE = space.rules(lost, stock=False)")
    assert error == (
        f"theirs.py:{LINES + 1}: rules: no block is one of rule lost's (conv*); there are C"
    )
    (note,) = fit(source(*rule, "SPACE = space.rules(two_ways, lost, stock=False)"), [bare]).notes
    assert note == error


WHERE = [
    "@space.template(where=holds)",
    "def SPACE(sch):",
    "    i, j, k = sch.get_loops(sch.get_sblock('C'))",
    "    sch.split(i, space.named('tile', sch.sample_perfect_tile(i, 2, 16)))",
]


def test_a_predicate_that_raises_is_named_with_its_line(bare: Task) -> None:
    error = refused(bare, "def holds(tile):", "    return tile[1] / 0", *WHERE)
    assert error == f"theirs.py:{LINES + 2}: ZeroDivisionError: division by zero (SPACE, gemm)"


def test_a_predicate_that_holds_for_nothing_is_named_with_its_line(bare: Task) -> None:
    error = refused(bare, "def holds(tile):", "    return tile[1] > 9999", *WHERE)
    assert error == (f"theirs.py:{LINES + 1}: SPACE: where= held for none of 800 draws for gemm")


def test_a_predicate_that_seldom_holds_is_taken(bare: Task) -> None:
    found = fit(source("def holds(tile):", "    return tile[1] == 16", *WHERE), [bare])
    assert (found.error, found.notes) == ("", ())


def test_tasks_that_a_space_does_not_fit_are_told_and_tuned_as_ever(bare: Task) -> None:
    from tvm import te, topi

    from spaces.lowering.extract_tasks import task_of

    x = te.placeholder((8, 8), name="x")
    other = task_of(te.create_prim_func([x, topi.nn.relu(x)]), bare.target, name="relu")
    found = fit(source("SPACE = tiled"), [bare, other])
    assert found.parts == {bare.key: ("tiled",)}
    assert found.error == ""
    (note,) = found.notes
    assert note.startswith("tiled applies to 1 of 2 tasks: theirs.py:")


def test_symbolic_programs_are_not_searched_by_declared_spaces(bare: Task) -> None:
    symbolic = replace(bare, shapes=(((("m", 4),), 1.0),))
    assert "has symbolic dimensions" in refused(symbolic, "SPACE = tiled")


def test_constants_of_a_template_are_decisions(bare: Task) -> None:
    lines = [
        "@space.template(constants=True)",
        "def opened(sch):",
        "    by_hand.function(sch)",
        "SPACE = opened",
    ]
    task = with_space(bare, *lines)
    (mine,) = find_declared(task)
    assert mine.points is None
    found = drawn(task, 40)
    assert len({c.key for c in found}) == 5, "a tile of 4 may be 1, 2, 4, 8 or 16"
    for candidate in found[:5]:
        realize(task, candidate)


IMPERFECT = [
    "@space.template(where=lambda tile: tile[0] is None and tile[1] > 2)",
    "def odd(sch):",
    "    i, j, k = sch.get_loops(sch.get_sblock('C'))",
    "    tile = space.named('tile', space.sample_tile(sch, i, 2, 24))",
    "    i0, i1 = sch.split(i, tile)",
    "    sch.reorder(i0, k, i1, j)",
    "    space.peel(sch, i0, i1)",
    "    sch.vectorize(j)",
    "SPACE = odd",
]


def inner_rows(task: Task, candidate: Candidate) -> int:
    return loops_of(task, candidate)[2]


def loops_of(task: Task, candidate: Candidate) -> list[int]:
    schedule = realize(task, candidate)
    loops = schedule.get_loops(schedule.get_sblock("C"))
    return [int(schedule.get(loop).extent) for loop in loops]


def guards(task: Task, candidate: Candidate) -> list[str]:
    """The conditions, other than on the step of a sum, that a program is compiled with."""
    *_, last = modules_after("StmtSimplify", realize(task, candidate).mod, task.target)
    found = re.findall(r"^ *if (.*):$", last.script(), re.MULTILINE)
    return [condition for condition in found if "<" in condition]


def test_a_tile_need_not_divide_its_loop(bare: Task) -> None:
    import tvm

    task = with_space(bare, *IMPERFECT)
    found = drawn(task, 60)
    rows = {inner_rows(task, candidate): candidate for candidate in found}
    assert min(rows) > 2, "its predicate sees what it named in a list"
    odd = next(candidate for number, candidate in rows.items() if 64 % number)
    a, b = np.random.default_rng(0).standard_normal((2, 64, 64), np.float32)
    given = [tvm.runtime.tensor(array) for array in (a, b, np.zeros_like(a))]
    tvm.compile(realize(task, odd).mod, target=parse_target(task.target))["main"](*given)
    assert np.allclose(given[-1].numpy(), a @ b, atol=1e-4)


def test_what_is_peeled_has_no_predicate_in_its_inner_loop(bare: Task) -> None:
    task = with_space(bare, *IMPERFECT)
    odd = next(c for c in drawn(task, 60) if 64 % inner_rows(task, c))
    assert guards(task, odd) == []
    plain = with_space(bare, *[line for line in IMPERFECT if "peel" not in line])
    guarded = next(c for c in drawn(plain, 60) if 64 % inner_rows(plain, c))
    assert len(guards(plain, guarded)) == 1


def test_a_function_of_arguments_gives_a_space(bare: Task) -> None:
    made = [
        "def of_rows(rows):",
        "    @space.manual(name=f'rows-of-{rows}')",
        "    def one(sch):",
        "        i, j, k = sch.get_loops(sch.get_sblock('C'))",
        "        sch.split(i, [None, rows])",
        "    return one",
    ]
    four = replace(source(*made, name="of_rows"), arguments='{"rows": 4}')
    eight = replace(four, arguments='{"rows": 8}')
    assert fit(four, [bare]).parts == {bare.key: ("rows-of-4",)}
    assert fit(eight, [bare]).parts == {bare.key: ("rows-of-8",)}
    assert four.version != eight.version
    wrong = replace(four, arguments='{"columns": 4}')
    assert "unexpected keyword argument 'columns'" in fit(wrong, [bare]).error
    not_one = replace(source("SPACE = by_hand"), arguments="{}")
    assert "is no function: arguments are for one that makes it" in fit(not_one, [bare]).error


LACKING = """
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

@derived_object
class Unable(ms.{kind}.{base}):
    sch_rules, postprocs, mutator_probs = [], [], {{}}  # fields of generators

    def _initialize_with_tune_context(self, context):
        pass
"""


@pytest.mark.parametrize(
    ("kind", "base", "lacks", "space"),
    [
        ("schedule_rule", "PyScheduleRule", "apply", "space.rules(Unable)"),
        ("postproc", "PyPostproc", "apply", "space.rules(postprocs=lambda: [Unable()])"),
        ("postproc", "PyPostproc", "apply", "space.template(tiled, postprocs=lambda: [Unable()])"),
        ("mutator", "PyMutator", "apply", "space.rules(mutators=lambda: {Unable(): 1.0})"),
        ("space_generator", "PySpaceGenerator", "generate_design_space", "space.generator(Unable)"),
    ],
)
def test_a_method_that_an_object_of_theirs_lacks_is_named(
    bare: Task, kind: str, base: str, lacks: str, space: str
) -> None:
    text = LACKING.format(kind=kind, base=base)
    if "tiled" in space:
        space = space.replace("tiled", "tiled.function")
    found = fit(source(*text.splitlines(), f"SPACE = {space}"), [bare])
    assert f"Unable has no method {lacks}" in found.error
