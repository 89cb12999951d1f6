"""TVM's space generators, and the default spaces, hold what they hold in MetaSchedule."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from spaces.design_space.declared.fit import fit
from spaces.design_space.trace_space import TraceSpace
from spaces.ir.schedules import replay, task_module
from tests.compatibility.stock_programs import (
    CUDA,
    LLVM,
    SM_75,
    VNNI,
    arm,
    cuda,
    drawn,
    our_answer,
    our_space,
    outlines,
    post_order,
    redrawn,
    register,
    stock_answer,
    stock_context,
    stock_sketches,
    task,
)
from tests.lean import LEAN
from tuner import space
from tuner.errors import UsageError
from tuner.task import SpaceSource

pytestmark = [pytest.mark.tvm]

OPERATORS = ["C1D", "C2D", "C3D", "CAP", "DEP", "DIL", "GMM", "GRP", "T2D", "NRM", "SFM"]
OPERATORS += ["CBR", "TBG"]
long = pytest.mark.long


def on_both_targets(first: int) -> list[Any]:
    """Operators on a CPU and a GPU; one of these each time, in turn."""
    return [
        pytest.param(operator, target, marks=() if (place + first) % 2 == gpu else (long,))
        for place, operator in enumerate(OPERATORS)
        for gpu, target in enumerate((LLVM, CUDA))
    ]


@pytest.fixture(scope="module", autouse=True)
def intrinsics() -> None:
    register("cuda", "arm_cpu", "x86", "dot_product_common")


def python_rule(apply: Callable[[Any, Any], list[Any]]) -> Any:
    """A rule as users of MetaSchedule derive one; its class."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule

    class Derived(PyScheduleRule):  # type: ignore[misc]
        def _initialize_with_tune_context(self, context: Any) -> None:
            pass

        def apply(self, sch: Any, block: Any) -> list[Any]:
            is_root = sch.get_sref(block).parent is None
            return [sch] if is_root else apply(sch, block)

        def clone(self) -> Any:
            return made()

        @classmethod
        def of_class(cls) -> Any:
            return made()

        @staticmethod
        def of_nothing() -> Any:
            return made()

    made = derived_object(Derived)
    return made


def tiled(sch: Any, block: Any) -> list[Any]:
    """Its first loop in tiles."""
    new = sch.copy()
    first, *_ = new.get_loops(block)
    new.split(first, new.sample_perfect_tile(first, 2, 16))
    return [new]


def two_ways(sch: Any, block: Any) -> list[Any]:
    """Its first loop in tiles, or unrolled in part."""
    other = sch.copy()
    other.annotate(other.get_loops(block)[0], "tested_steps", 4)
    return [*tiled(sch, block), other]


def turned(sch: Any, block: Any) -> list[Any]:
    """As it is, or its two last loops the other way round."""
    other = sch.copy()
    *_, outer, inner = other.get_loops(block)
    other.reorder(inner, outer)
    return [sch, other]


def second_inlined(sch: Any, block: Any) -> list[Any]:
    """Without the block in the middle."""
    if str(sch.get(block).name_hint) == "second":
        sch = sch.copy()
        sch.compute_inline(block)
    return [sch]


@pytest.mark.parametrize(
    ("program", "applied", "count"),
    [
        ("matmul", [tiled], 1),
        ("matmul", [two_ways], 2),
        ("matmul", [two_ways, turned], 4),
        ("three_steps", [two_ways], 8),
        ("three_steps", [second_inlined, two_ways], 4),
    ],
)
def test_rules_in_python_are_applied_to_all_blocks_in_the_same_order(
    program: str, applied: list[Callable[[Any, Any], list[Any]]], count: int
) -> None:
    of = task(program, LLVM)
    classes = [python_rule(apply) for apply in applied]
    theirs = stock_sketches(of, post_order([each() for each in classes]))
    ours = our_space(of, space.rules(*classes, stock=False, postprocs=list))
    assert outlines(ours.sketches) == outlines(theirs)
    assert len(theirs) == count


@pytest.mark.parametrize("applied", [[tiled], [two_ways], [two_ways, turned]])
def test_our_word_for_a_rule_is_one_of_metaschedules(
    applied: list[Callable[[Any, Any], list[Any]]],
) -> None:
    of = task("three_steps", LLVM)
    theirs = stock_sketches(of, post_order([python_rule(apply)() for apply in applied]))
    mine = [space.rule(apply, blocks="[!r]*", name=apply.__name__) for apply in applied]
    assert outlines(our_space(of, space.rules(*mine, stock=False)).sketches) == outlines(theirs)


def test_an_object_is_derived_by_any_of_its_constructors() -> None:
    of = task("matmul", LLVM)
    made = python_rule(two_ways)
    theirs = outlines(stock_sketches(of, post_order([made()])))
    for rule in (made, made(), made.of_class, made.of_class(), made.of_nothing()):
        assert outlines(our_space(of, space.rules(rule, stock=False)).sketches) == theirs


@pytest.mark.parametrize(
    ("names", "count"),
    [(None, 8), (("second",), 2), (("first", "third"), 4), (("first", "second", "third"), 8)],
)
def test_blocks_may_be_chosen_by_a_function(names: tuple[str, ...] | None, count: int) -> None:
    from tvm.s_tir.meta_schedule.space_generator import PostOrderApply

    def made() -> Any:
        chosen = None if names is None else lambda block: str(block.name_hint) in names
        return PostOrderApply(
            f_block_filter=chosen,
            sch_rules=[python_rule(two_ways)()],
            postprocs=[],
            mutator_probs={},
        )

    of = task("three_steps", LLVM)
    theirs = stock_sketches(of, made())
    assert outlines(our_space(of, space.generator(made)).sketches) == outlines(theirs)
    assert outlines(our_space(of, space.generator(made())).sketches) == outlines(theirs)
    assert len(theirs) == count


def test_two_blocks_of_one_name_are_refused_by_both() -> None:
    of = task("same_names", LLVM)
    rule = python_rule(tiled)
    with pytest.raises(RuntimeError, match="Duplicated block name"):
        stock_sketches(of, post_order([rule()]))
    mine = our_space(of, space.rules(rule, stock=False))
    with pytest.raises(RuntimeError, match="Duplicated block name"):
        len(mine.sketches)


def in_tiles(sch: Any) -> None:
    rows, *_ = sch.get_loops(sch.get_sblock("C"))
    sch.split(rows, sch.sample_perfect_tile(rows, 2, 16))


def in_parallel(sch: Any) -> None:
    rows, *_ = sch.get_loops(sch.get_sblock("C"))
    sch.parallel(rows)


def of_functions(*functions: Callable[[Any], None]) -> Any:
    """A generator of functions: of one, or a union."""
    from tvm.s_tir.meta_schedule.space_generator import ScheduleFn, SpaceGeneratorUnion

    made = [ScheduleFn(f, sch_rules=[], postprocs=[], mutator_probs={}) for f in functions]
    if len(made) == 1:
        return made[0]
    return SpaceGeneratorUnion(made, sch_rules=[], postprocs=[], mutator_probs={})


@pytest.mark.parametrize("functions", [(in_tiles,), (in_tiles, in_parallel), (in_tiles, in_tiles)])
def test_a_generator_of_functions_is_taken_as_it_is(
    functions: tuple[Callable[[Any], None], ...],
) -> None:
    of = task("matmul", LLVM)
    theirs = stock_sketches(of, of_functions(*functions))
    mine = our_space(of, space.generator(lambda: of_functions(*functions)))
    assert outlines(mine.sketches) == outlines(theirs)
    assert len(theirs) == len(functions)
    assert [*drawn(of, mine, 2)]


def test_a_template_is_a_generator_of_one_function() -> None:
    of = task("matmul", LLVM)
    theirs = stock_sketches(of, of_functions(in_tiles))
    mine = our_space(of, space.template(in_tiles))
    assert outlines(mine.sketches) == outlines(theirs)


def test_a_generator_that_lacks_a_method_is_refused_by_both() -> None:
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.space_generator import PySpaceGenerator

    @derived_object
    class Lacking(PySpaceGenerator):  # type: ignore[misc]
        sch_rules: list[Any] = []  # noqa: RUF012
        postprocs: list[Any] = []  # noqa: RUF012
        mutator_probs: dict[Any, float] = {}  # noqa: RUF012

    of = task("matmul", LLVM)
    with pytest.raises(RuntimeError, match="not implemented"):
        stock_context(of, Lacking())
    with pytest.raises(UsageError, match="has no method _initialize_with_tune_context"):
        our_space(of, space.generator(Lacking))


@pytest.mark.parametrize(
    ("operator", "target"),
    [
        *on_both_targets(0),
        *((operator, target) for operator in ("C2D", "SFM") for target in (VNNI, SM_75)),
        ("matmul_half", CUDA),
        *(pytest.param(f"{name}_half", CUDA, marks=long) for name in ("matmul_relu", "conv")),
    ],
)
def test_a_default_space_has_metaschedules_sketches(operator: str, target: str) -> None:
    of = task(operator, target)
    theirs = stock_sketches(of, "post-order-apply")
    assert outlines(TraceSpace(of).sketches) == outlines(theirs)


@pytest.mark.parametrize(("operator", "target"), on_both_targets(1))
def test_the_same_decisions_give_the_same_kernel_in_a_default_space(
    operator: str, target: str
) -> None:
    of = task(operator, target)
    mine = TraceSpace(of)
    context = stock_context(of, "post-order-apply")
    module = task_module(of.module)
    for candidate in drawn(of, mine, 1):
        schedule = replay(module, candidate.payload)
        ours = our_answer(mine, schedule.trace)
        assert ours == stock_answer(schedule, context.space_generator.postprocs)


@pytest.mark.parametrize("operator", ["C2D", "GMM"])
def test_copies_behind_the_scenes_are_searched_from_ampere_on(operator: str) -> None:
    asynchronous = {
        arch: sum(
            "async" in str(sketch) for sketch in TraceSpace(task(operator, cuda(arch))).sketches
        )
        for arch in ("sm_70", "sm_75", "sm_80", "sm_90")
    }
    assert asynchronous == {"sm_70": 0, "sm_75": 0, "sm_80": 2, "sm_90": 2}


@pytest.mark.parametrize("operator", ["C2D", "GMM"])
def test_copies_of_a_generator_do_not_add_rules(operator: str) -> None:
    from tvm.s_tir.meta_schedule.space_generator import PostOrderApply

    of = task(operator, CUDA)
    context = stock_context(of, PostOrderApply())
    generator = PostOrderApply()
    for _ in range(10):
        context = context.clone()
        generator = stock_context(of, generator).space_generator
    theirs = [schedule.trace for schedule in context.generate_design_space()]
    mine = our_space(of, space.generator(generator))
    assert outlines(mine.sketches) == outlines(theirs)
    assert len(theirs) == 3


@pytest.mark.parametrize(
    ("program", "features", "intrinsic"),
    [
        ("bytes_i8i8", ("+neon",), "dot_4x4_i8i8s32_neon"),
        ("bytes_i8i8", ("+neon", "+v8.2a", "+dotprod"), "dot_4x4_i8i8s32_sdot"),
        ("bytes_u8u8u32", ("+neon", "+v8.2a", "+dotprod"), "dot_4x4_u8u8u32_udot"),
        ("bytes_u8u8i32", ("+neon", "+v8.2a", "+dotprod"), "dot_4x4_u8u8i32_hdot"),
    ],
)
def test_instructions_of_arm_are_in_the_default_space(
    program: str, features: tuple[str, ...], intrinsic: str
) -> None:
    of = task(program, arm(*features))
    context = stock_context(of, "post-order-apply")
    theirs = [schedule.trace for schedule in context.generate_design_space()]
    mine = TraceSpace(of)
    assert outlines(mine.sketches) == outlines(theirs)
    using = [sketch for sketch in theirs if intrinsic in str(sketch)]
    assert using
    schedule = next(filter(None, (redrawn(of, using[0], seed) for seed in range(9))))
    candidates = [each for each in drawn(of, mine, 12) if intrinsic in each.payload]
    assert "call_llvm_pure_intrin" in mine.write(candidates[0]).mod.script()
    assert stock_answer(schedule, context.space_generator.postprocs)


@pytest.mark.parametrize(
    ("kind", "program", "target"),
    [
        ("llvm", "matmul", LLVM),
        ("cuda", "matmul", CUDA),
        ("cuda-tensorcore", "matmul_half", CUDA),
        ("from-target", "matmul_half", CUDA),
        ("from-target", "bytes_vnni", VNNI),
    ],
)
def test_a_generator_of_a_kind_is_taken_as_it_is(kind: str, program: str, target: str) -> None:
    from tvm.s_tir.meta_schedule.space_generator import PostOrderApply

    def made() -> Any:
        return PostOrderApply(sch_rules=kind, postprocs=kind, mutator_probs=kind)

    of = task(program, target)
    theirs = stock_sketches(of, made())
    assert outlines(our_space(of, space.generator(made)).sketches) == outlines(theirs)


FILE = """
from tuner import space
from tvm.s_tir.meta_schedule import mutator, postproc, schedule_rule
from tvm.s_tir.meta_schedule.space_generator import PostOrderApply

def parts():
    return dict(
        sch_rules=[schedule_rule.RandomComputeLocation()],
        postprocs=[postproc.RewriteLayout()],
        mutator_probs={mutator.MutateUnroll(): 1.0},
    )

SPACE = space.union(
    space.generator(lambda: PostOrderApply(**parts()), name="made"),
    space.generator(PostOrderApply(**parts()), name="given"),
    space.rules(
        schedule_rule.RandomComputeLocation,
        stock=False,
        postprocs=lambda: [postproc.RewriteLayout()],
        mutators=lambda: {mutator.MutateUnroll(): 1.0},
        name="ruled",
    ),
)
"""


def test_metaschedules_objects_in_a_file_are_three_ways_to_one_space() -> None:
    from tvm.s_tir.meta_schedule import schedule_rule

    from spaces.design_space.declared.load import load_parts

    of = task("two_steps", LLVM)
    source = SpaceSource("theirs.py", FILE, "SPACE")
    found = fit(source, [of])
    assert found.error == ""
    assert found.parts[of.key] == ("made", "given", "ruled")
    theirs = outlines(stock_sketches(of, post_order([schedule_rule.RandomComputeLocation()])))
    for part in load_parts(source):
        assert outlines(our_space(of, part).sketches) == theirs


NEW_PROCESS = """
import sys
from tests.compatibility.stock_programs import our_space, task
from tuner import space
for target in sys.argv[1:]:
    of = task("matmul", target)
    from tvm.s_tir.meta_schedule.space_generator import PostOrderApply
    print(len(our_space(of, space.generator(PostOrderApply)).sketches))
"""


def test_a_default_generator_finds_its_intrinsics_in_a_new_process() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", LEAN + NEW_PROCESS, VNNI, CUDA],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert answer.stdout.split() == ["3", "3"], answer.stderr[-200:]


AT_THE_TOP = """
from spaces.design_space.declared.load import load_parts
from tuner.task import SpaceSource
load_parts(SpaceSource("theirs.py", '''
from tvm.s_tir.meta_schedule.schedule_rule import MultiLevelTilingWithIntrin
from tuner import space
SPACE = space.rules(MultiLevelTilingWithIntrin("dp4a_s8s8s32", structure="SSSRRSRS"), stock=False)
''', "SPACE"))
"""


def test_a_file_may_name_intrinsics_where_it_is_read() -> None:
    made = subprocess.run(
        [sys.executable, "-c", LEAN + AT_THE_TOP],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert made.returncode == 0, made.stderr[-200:]
