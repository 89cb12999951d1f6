"""Schedules are refused, and programs rewritten, as MetaSchedule's post-processors do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spaces.design_space.trace_space import TraceSpace
from spaces.ir.schedules import code_hash, new_schedule, replay, task_module
from tests.compatibility import test_stock_rules as rules
from tests.compatibility.stock_programs import (
    CUDA,
    LLVM,
    SM_75,
    VNNI,
    drawn,
    our_answer,
    our_space,
    post_order,
    redrawn,
    register,
    stock_answer,
    stock_context,
    stock_sketches,
    task,
)
from tuner import space
from tuner.task import Task

pytestmark = [pytest.mark.tvm]

long = pytest.mark.long
Made = Callable[[], list[Any]]
Written = Callable[[Any], None]


def of(*names: str, **more: Any) -> Made:
    """A list of post-processors by their names, made anew at each call."""

    def made() -> list[Any]:
        from tvm.s_tir.meta_schedule import postproc

        return [
            getattr(postproc, name)(**(more if name == "RewriteTensorize" else {}))
            for name in names
        ]

    return made


LOOPS = of("RewriteParallelVectorizeUnroll")
REDUCTIONS = of("RewriteReductionBlock")
FETCHES = of("RewriteCooperativeFetch")
THREADS = of("RewriteUnboundBlock")
LAYOUT = of("RewriteLayout")
STATIC = of("DisallowDynamicLoop")
CONTIGUOUS = of("DisallowAsyncStridedMemCopy")
TENSORS = of("RewriteReductionBlock", "RewriteTensorize")
VECTOR_TENSORS = of("RewriteReductionBlock", "RewriteTensorize", vectorize_init_loop=True)
GPU_TENSORS = of("RewriteCooperativeFetch", "RewriteReductionBlock", "RewriteTensorize")
GPU = of(
    "DisallowDynamicLoop",
    "RewriteCooperativeFetch",
    "RewriteUnboundBlock",
    "RewriteParallelVectorizeUnroll",
    "RewriteReductionBlock",
    "VerifyGPUCode",
)
TILED_LOOPS = rules.all_of(rules.TILES, rules.UNROLL)
GPU_LOOPS = rules.all_of(rules.TILES_GPU, rules.INLINE_GPU, rules.UNROLL_GPU)
VNNI_DOT = rules.with_intrinsic("dot_16x4_vnni", **rules.CPU_DOT)

BY_RULES: list[tuple[str, Made, Made, str, str]] = [
    ("loops", LOOPS, TILED_LOOPS, "matmul", LLVM),
    ("loops-spatial", LOOPS, rules.UNROLL, "elementwise", LLVM),
    ("loops-norm", LOOPS, rules.UNROLL, "norm", LLVM),
    ("loops-gpu", LOOPS, GPU_LOOPS, "matmul_relu", CUDA),
    ("reductions", REDUCTIONS, rules.TILES, "matmul", LLVM),
    ("reductions-threads", REDUCTIONS, rules.ACROSS_THREADS, "softmax", CUDA),
    ("fetches", FETCHES, rules.TILES_GPU, "matmul", SM_75),
    ("fetches-warps", FETCHES, rules.tensor_cores(), "matmul_relu_half", CUDA),
    ("threads-after-tiles", THREADS, rules.ACROSS_THREADS, "norm", CUDA),
    ("layout", LAYOUT, rules.TILES, "free_layout", LLVM),
    ("layout-int64", LAYOUT, rules.TILES, "free_layout_int64", LLVM),
    ("layout-column", LAYOUT, rules.TILES, "free_layout_column", LLVM),
    ("tensors-vnni", VECTOR_TENSORS, VNNI_DOT, "bytes_vnni", VNNI),
    ("tensors-dp4a", GPU_TENSORS, rules.DP4A, "bytes", SM_75),
    ("tensors-wmma", TENSORS, rules.tensor_cores(), "matmul_relu_half", CUDA),
    ("tensors-mma", TENSORS, rules.mma_cores(), "matmul_relu_half", CUDA),
]
"""Post-processors, and rules after which they change what is written."""
EACH_TIME = {"loops", "reductions", "fetches", "threads-after-tiles", "layout", "tensors-vnni"}
"""One for each post-processor; the others are long."""


def nothing(sch: Any) -> None:
    """Leave the program as it is."""


def first_of(sch: Any) -> Any:
    return sch.get_child_blocks(sch.get_sblock("root"))[0]


def unrolled(sch: Any) -> None:
    *_, inner = sch.get_loops(first_of(sch))
    sch.unroll(inner)


def vectors_wanted(sch: Any) -> None:
    sch.annotate(sch.get_sblock("root"), "meta_schedule.vectorize", 64)
    sch.annotate(sch.get_sblock("root"), "meta_schedule.parallel", 16)


def weights_cached(times: int) -> Written:
    def written(sch: Any) -> None:
        block = sch.get_sblock("product")
        rows, columns, depth = sch.get_loops(block)
        outer, inner = sch.split(columns, [None, 4])
        sch.reorder(outer, depth, rows, inner)
        for number in range(times):
            block = sch.cache_read(block, 1 if number == 0 else 0, f"global{number or ''}")

    return written


def copied_behind(operand: int) -> Written:
    """One operand is copied while the rows before are computed with."""

    def written(sch: Any) -> None:
        block = sch.get_sblock("C")
        _, columns, _ = sch.get_loops(block)
        sch.compute_at(sch.cache_read(block, operand, "global.copy"), columns)
        for key, value in (("stage", [0, 1]), ("order", [0, 1]), ("async_stages", [0])):
            sch.annotate(columns, f"software_pipeline_{key}", value)

    return written


def staged(block_columns: int) -> Written:
    """A product of a GPU whose blocks have this many threads, and a tile of as many floats."""

    def written(sch: Any) -> None:
        block = sch.get_sblock("C")
        rows, columns, _ = sch.get_loops(block)
        grid, threads = sch.split(sch.fuse(rows, columns), [None, block_columns])
        sch.bind(grid, "blockIdx.x")
        sch.bind(threads, "threadIdx.x")

    return written


BY_HAND: list[tuple[str, Made, Written, str, str, str]] = [
    # post-processors, schedule, program, target, what comes of it
    ("threads", THREADS, nothing, "elementwise", CUDA, "changed"),
    ("threads-large", THREADS, nothing, "elementwise_large", CUDA, "changed"),
    ("threads-norm", THREADS, nothing, "norm", CUDA, "changed"),
    ("threads-softmax", THREADS, nothing, "SFM", CUDA, "changed"),
    ("threads-unrolled", THREADS, unrolled, "elementwise", CUDA, "changed"),
    ("vectors", LOOPS, vectors_wanted, "elementwise", LLVM, "changed"),
    ("vectors-any-length", LOOPS, vectors_wanted, "any_length", LLVM, "changed"),
    ("layout", LAYOUT, nothing, "matmul", LLVM, "kept"),
    ("layout-cached", LAYOUT, weights_cached(1), "free_layout", LLVM, "changed"),
    ("layout-cached-twice", LAYOUT, weights_cached(2), "free_layout", LLVM, "changed"),
    ("layout-no-block", LAYOUT, nothing, "no_block", LLVM, "refused"),
    ("static", STATIC, nothing, "matmul", CUDA, "kept"),
    ("dynamic", STATIC, nothing, "triangle", CUDA, "refused"),
    ("copied-rows", CONTIGUOUS, copied_behind(0), "matmul", LLVM, "kept"),
    ("copied-columns", CONTIGUOUS, copied_behind(1), "matmul", LLVM, "refused"),
    ("gpu", GPU, staged(256), "matmul", CUDA, "changed"),
    ("gpu-too-many-threads", GPU, staged(2048), "matmul", CUDA, "refused"),
]
"""Post-processors, and schedules by hand."""


@pytest.fixture(scope="module", autouse=True)
def intrinsics() -> None:
    register("cuda", "arm_cpu", "x86", "dot_product_common")


def initialised(of_task: Task, postprocs: list[Any]) -> list[Any]:
    """MetaSchedule's own, ready for a task."""
    return list(stock_context(of_task, post_order([], postprocs)).space_generator.postprocs)


@pytest.mark.parametrize(
    ("postprocs", "made", "program", "target"),
    [
        pytest.param(*case, id=name, marks=() if name in EACH_TIME else (long,))
        for name, *case in BY_RULES
    ],
)
def test_a_post_processor_makes_the_same_of_what_rules_left_to_it(
    postprocs: Made, made: Made, program: str, target: str
) -> None:
    of_task = task(program, target)
    mine = our_space(of_task, space.rules(*made(), stock=False, postprocs=postprocs))
    stock = initialised(of_task, postprocs())
    changed = 0
    for sketch in stock_sketches(of_task, post_order(made())):
        for seed in range(2):
            schedule = redrawn(of_task, sketch, seed)
            if schedule is None:
                continue
            before = code_hash(schedule.mod)
            answer = our_answer(mine, schedule.trace)
            assert answer == stock_answer(schedule, stock)
            changed += answer not in ("", before)
    assert changed


@pytest.mark.parametrize(
    ("postprocs", "write", "program", "target", "outcome"),
    [pytest.param(*case, id=name) for name, *case in BY_HAND],
)
def test_a_post_processor_takes_and_refuses_the_same_schedules(
    postprocs: Made, write: Written, program: str, target: str, outcome: str
) -> None:
    of_task = task(program, target)
    mine = our_space(of_task, space.template(write, name="by_hand", postprocs=postprocs))
    schedule = new_schedule(task_module(of_task.module))
    write(schedule)
    before = code_hash(schedule.mod)
    ours = our_answer(mine, schedule.trace)
    assert ours == stock_answer(schedule, initialised(of_task, postprocs()))
    assert outcome == {"": "refused", before: "kept"}.get(ours, "changed")
    assert bool([*drawn(of_task, mine, 1)]) == (outcome != "refused")


DEFAULTS = [
    ("matmul", LLVM),
    pytest.param("SFM", LLVM, marks=long),
    pytest.param("matmul", CUDA, marks=long),
    ("SFM", CUDA),
    pytest.param("DEP", CUDA, marks=long),
    pytest.param("matmul_relu_half", CUDA, marks=long),
]


@pytest.mark.parametrize(("program", "target"), DEFAULTS)
def test_the_default_post_processors_answer_alike(program: str, target: str) -> None:
    of_task = task(program, target)
    mine = TraceSpace(of_task)
    context = stock_context(of_task, "post-order-apply")
    sketches = [schedule.trace for schedule in context.generate_design_space()]
    for sketch in sketches:
        for seed in range(2):
            schedule = redrawn(of_task, sketch, seed)
            if schedule is None:
                continue
            trace = schedule.trace
            ours = our_answer(mine, trace)
            assert ours == stock_answer(schedule, context.space_generator.postprocs)
            assert not (ours and mine.why_not(trace.simplified(True))), "no valid one is left out"


@pytest.mark.parametrize(
    "program",
    [
        *("matmul", "matmul_relu_half", "NRM"),
        *(
            pytest.param(name, marks=long)
            for name in (
                "GMM",
                "CAP",
                "SFM",
                "CBR",
                "TBG",
                "C1D",
                "C2D",
                "C3D",
                "DEP",
                "GRP",
                "T2D",
            )
        ),
    ],
)
def test_metaschedule_takes_each_kernel_that_we_draw_for_a_gpu(program: str) -> None:
    of_task = task(program, CUDA)
    postprocs = stock_context(of_task, "post-order-apply").space_generator.postprocs
    module = task_module(of_task.module)
    for candidate in drawn(of_task, TraceSpace(of_task), 7):
        assert stock_answer(replay(module, candidate.payload), postprocs)


def test_no_kernel_that_metaschedule_takes_is_left_out() -> None:
    """But those whose sums do not fit a thread's registers, which it does not count."""
    of_task = task("GMM", CUDA)
    mine, context = TraceSpace(of_task), stock_context(of_task, "post-order-apply")
    sketches = [schedule.trace for schedule in context.generate_design_space()]
    for seed in range(60):
        schedule = redrawn(of_task, sketches[seed % len(sketches)], seed)
        why_not = "" if schedule is None else mine.why_not(schedule.trace.simplified(True))
        if why_not and "registers" not in why_not:
            assert not stock_answer(schedule, context.space_generator.postprocs)
