"""TVM's schedule rules span in our spaces what they span in MetaSchedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spaces.ir.schedules import replay, task_module
from tests.compatibility.stock_programs import (
    CUDA,
    LLVM,
    SM_75,
    VNNI,
    arm,
    drawn,
    kinds,
    our_answer,
    our_space,
    outline,
    outlines,
    post_order,
    redrawn,
    register,
    stock_answer,
    stock_sketches,
    task,
)
from tuner import space

pytestmark = [pytest.mark.tvm]

long = pytest.mark.long
Made = Callable[[], list[Any]]
REUSE = {"req": "must", "levels": [1, 2], "scope": "global"}
READ_SHARED = {"req": "must", "levels": [4], "scope": "shared"}
WRITE_LOCAL = {"req": "must", "levels": [3], "scope": "local"}
GRID = ["blockIdx.x", "vthread.x", "threadIdx.x"]
TENSOR_GRID = ["blockIdx.y", "blockIdx.x", "threadIdx.y"]


def of(name: str, *arguments: Any, **more: Any) -> Made:
    """A list of one rule by its name, made anew at each call."""

    def made() -> list[Any]:
        from tvm.s_tir.meta_schedule import schedule_rule
        from tvm.s_tir.meta_schedule.schedule_rule import ReuseType

        reuse = {key: ReuseType(**value) for key, value in more.items() if key in _REUSE}
        return [getattr(schedule_rule, name)(*arguments, **{**more, **reuse})]

    return made


def all_of(*parts: Made) -> Made:
    return lambda: [rule for part in parts for rule in part()]


_REUSE = ("reuse_read", "reuse_write")
ADD_RFACTOR = of("AddRFactor", max_jobs_per_core=16, max_innermost_factor=64)
BIND = of("AutoBind", max_threadblocks=256, thread_extents=[32, 64, 128, 256, 512, 1024])
INLINE_CPU = of("AutoInline", False, True, True, True, True, True, ["tirx.exp"])
INLINE_GPU = of("AutoInline", True, True, True, False, False, False, [])
SCALARS = of("InlineConstantScalars")
ACROSS_THREADS = of("CrossThreadReduction", thread_extents=[4, 8, 16, 32, 64, 128, 256, 512])
TILES = of(
    "MultiLevelTiling",
    structure="SSRSRS",
    max_innermost_factor=64,
    reuse_write={"req": "may", "levels": [1, 2], "scope": "global"},
)
TILES_GPU = of(
    "MultiLevelTiling",
    structure="SSSRRSRS",
    tile_binds=GRID,
    max_innermost_factor=64,
    vector_load_lens=[1, 2, 3, 4],
    reuse_read=READ_SHARED,
    reuse_write=WRITE_LOCAL,
)
TILES_POOL = of(
    "MultiLevelTiling",
    structure="SRS",
    reuse_read={"req": "must", "levels": [1], "scope": "global"},
    reuse_write={"req": "must", "levels": [1], "scope": "global"},
    filter_fn=lambda sch, block: sch.get(block).name_hint == "pool",
)
VECTORS = of(
    "MultiLevelTilingWideVector",
    structure="SSRSRS",
    vector_length_in_bits=1024,
    max_innermost_factor=64,
    reuse_write=REUSE,
)
UNROLL = of("ParallelizeVectorizeUnroll", 16, 64, [0, 16, 64, 512], True)
UNROLL_GPU = of("ParallelizeVectorizeUnroll", -1, -1, [0, 16, 64, 512, 1024], True)
ANYWHERE = of("RandomComputeLocation")


def with_intrinsic(name: str, **more: Any) -> Made:
    return of("MultiLevelTilingWithIntrin", name, max_innermost_factor=64, **more)


CPU_DOT = {"structure": "SSRSRS", "reuse_write": {**REUSE, "req": "may"}}
DP4A = with_intrinsic(
    "dp4a_s8s8s32",
    structure="SSSRRSRS",
    tile_binds=GRID,
    vector_load_lens=[1, 2, 3, 4],
    reuse_read=READ_SHARED,
    reuse_write=WRITE_LOCAL,
)


NEON = with_intrinsic("dot_4x4_i8i8s32_neon", **CPU_DOT)


def tensor_cores(scope: str = "shared", pipeline: bool = False, out: str = "float32") -> Made:
    from_names = {
        "init": "wmma_fill_16x16x16_f32",
        "load_a": f"wmma_load_16x16x16_f16_a_{scope.replace('.', '_')}",
        "load_b": f"wmma_load_16x16x16_f16_b_{scope.replace('.', '_')}",
        "compute": "wmma_sync_16x16x16_f16f16f32",
        "store": f"wmma_store_16x16x16_f32_{scope.replace('.', '_')}",
    }
    if out == "float16":
        from_names = {key: name.replace("f32", "f16") for key, name in from_names.items()}
    return of(
        "MultiLevelTilingTensorCore",
        intrin_groups=[from_names],
        structure="SSSRRSRS",
        tile_binds=TENSOR_GRID,
        max_innermost_factor=4,
        vector_load_lens=[1, 2, 3, 4, 8, 16],
        reuse_read={"req": "must", "levels": [4], "scope": scope},
        reuse_write={"req": "must", "levels": [2], "scope": scope},
        use_software_pipeline=pipeline,
    )


WMMA_OR_TILES = all_of(tensor_cores(), TILES_GPU)


def mma_cores() -> Made:
    return of(
        "MultiLevelTilingTensorCore",
        intrin_groups=[
            {
                "init": "mma_init_m16n8k8_f32",
                "load_a": "mma_load_m16n8k8_f16_A_shared_dyn",
                "load_b": "mma_load_m16n8k8_f16_B_shared_dyn",
                "compute": "mma_sync_m16n8k8_f16f16f32",
                "store": "mma_store_m16n8k8_f32_global",
            }
        ],
        structure="SSSRRSRS",
        tile_binds=TENSOR_GRID,
        max_innermost_factor=4,
        vector_load_lens=[1, 2, 3, 4, 8, 16],
        reuse_read={"req": "must", "levels": [4], "scope": "shared.dyn"},
        reuse_write={"req": "no", "levels": [2], "scope": "shared.dyn"},
        use_software_pipeline=True,
    )


APPLY: list[tuple[str, Made, str, str, int, str]] = [
    ("rfactor", ADD_RFACTOR, "matmul_deep", LLVM, 3, "RFactor"),
    ("rfactor-argmax", ADD_RFACTOR, "argmax", LLVM, 3, "RFactor"),
    ("bind", BIND, "elementwise", CUDA, 1, "Bind"),
    ("bind-large", BIND, "elementwise_large", CUDA, 1, "Bind"),
    ("bind-sum", BIND, "sum_of_rows", CUDA, 1, "Bind"),
    ("bind-total", BIND, "total", CUDA, 1, "Bind"),
    ("bind-scalar", BIND, "zero_dimensions", CUDA, 1, "Bind"),
    ("inline-consumers", INLINE_CPU, "conv_bn_relu", LLVM, 1, "ComputeInline"),
    ("inline-spatial", INLINE_CPU, "chain", LLVM, 1, "ComputeInline"),
    ("inline-softmax", INLINE_GPU, "SFM", CUDA, 1, "ComputeInline"),
    ("inline-tiles", all_of(TILES_GPU, INLINE_GPU), "conv_bn_relu", SM_75, 1, "ComputeInline"),
    ("scalars", SCALARS, "scalars", LLVM, 1, "ComputeInline"),
    ("threads", ACROSS_THREADS, "softmax", CUDA, 4, "Bind"),
    ("threads-inlined", all_of(INLINE_GPU, ACROSS_THREADS), "softmax", CUDA, 4, "Bind"),
    ("threads-norm", ACROSS_THREADS, "norm", CUDA, 2, "Bind"),
    ("threads-argmax", ACROSS_THREADS, "argmax", CUDA, 2, "Bind"),
    ("threads-argmax-32", ACROSS_THREADS, "argmax_small", CUDA, 2, "Bind"),
    ("tiles", TILES, "matmul", LLVM, 3, "SamplePerfectTile"),
    ("tiles-relu", TILES, "matmul_relu", LLVM, 3, "ReverseComputeAt"),
    ("tiles-pool", TILES_POOL, "pool", LLVM, 1, "CacheRead"),
    ("tiles-gpu", TILES_GPU, "matmul", SM_75, 1, "CacheRead"),
    ("tiles-gpu-relu", TILES_GPU, "matmul_relu", SM_75, 1, "CacheRead"),
    ("tiles-gpu-async", TILES_GPU, "matmul", CUDA, 3, "CacheRead"),
    ("tiles-gpu-read-twice", TILES_GPU, "read_twice", SM_75, 1, "CacheRead"),
    ("tiles-vectors", VECTORS, "conv_half", LLVM, 2, "SamplePerfectTile"),
    ("vnni", with_intrinsic("dot_16x4_vnni", **CPU_DOT), "bytes_vnni", VNNI, 3, "Blockize"),
    ("neon", NEON, "bytes_i8i8", arm("+neon"), 3, "Blockize"),
    ("dp4a", DP4A, "bytes", SM_75, 1, "Blockize"),
    ("wmma", tensor_cores(), "matmul_relu_half", CUDA, 1, "TransformLayout"),
    ("wmma-dynamic", tensor_cores("shared.dyn"), "matmul_relu_half", CUDA, 1, "TransformLayout"),
    ("wmma-pipeline", tensor_cores(pipeline=True), "matmul_relu_half", CUDA, 1, "Annotate"),
    ("wmma-conv", tensor_cores(), "conv_half", CUDA, 1, "ReIndex"),
    ("wmma-conv-1x1", tensor_cores(), "conv_1x1_half", CUDA, 1, "ReIndex"),
    ("wmma-half", tensor_cores(out="float16"), "matmul_half", CUDA, 1, "TransformLayout"),
    ("wmma-odd", tensor_cores(), "matmul_relu_odd", CUDA, 1, "PadEinsum"),
    ("wmma-odd-conv", tensor_cores(), "conv_odd_half", CUDA, 1, "PadEinsum"),
    ("wmma-odd-depth", tensor_cores(), "matmul_ragged_depth", CUDA, 1, "PadEinsum"),
    ("wmma-odd-rows", tensor_cores(), "matmul_ragged_rows", CUDA, 1, "PadEinsum"),
    ("mma", mma_cores(), "matmul_relu_half", CUDA, 1, "TransformLayout"),
    ("wmma-or-tiles", WMMA_OR_TILES, "matmul_relu_half", CUDA, 1, "TransformLayout"),
    ("wmma-else-tiles", WMMA_OR_TILES, "matmul_relu", SM_75, 1, "SamplePerfectTile"),
    ("unroll", UNROLL, "matmul", LLVM, 1, "SampleCategorical"),
    ("unroll-spatial", UNROLL, "elementwise", LLVM, 1, "Annotate"),
    ("unroll-gpu", UNROLL_GPU, "matmul", CUDA, 1, "SampleCategorical"),
    ("anywhere", ANYWHERE, "chain", LLVM, 1, "SampleComputeLocation"),
    ("anywhere-softmax", ANYWHERE, "softmax", LLVM, 1, "SampleComputeLocation"),
]
"""Rules, what they are applied to, how many sketches come of it, and an instruction in these."""

KEEP: list[tuple[str, Made, str, str]] = [
    ("rfactor-wide", ADD_RFACTOR, "matmul_relu", LLVM),
    ("inline-only-block", INLINE_CPU, "pool", LLVM),
    ("inline-maximum", INLINE_CPU, "sum_of_rows", LLVM),
    ("inline-constant", INLINE_GPU, "constant", CUDA),
    ("scalars-output", SCALARS, "constant", LLVM),
    ("scalars-none", SCALARS, "matmul", LLVM),
    ("threads-none", ACROSS_THREADS, "elementwise", CUDA),
    ("tiles-none", TILES, "elementwise", LLVM),
    ("tiles-trivial-axis", TILES_GPU, "sum_of_rows", CUDA),
    ("dp4a-floats", DP4A, "matmul", SM_75),
    ("dp4a-odd", DP4A, "bytes_odd", SM_75),
    ("vnni-other-bytes", with_intrinsic("dot_16x4_vnni", **CPU_DOT), "bytes_u8u8u32", VNNI),
    ("wmma-floats", tensor_cores(), "matmul_relu", CUDA),
]
"""Rules, and programs that are nothing to them."""

EACH_TIME = {
    *("rfactor", "bind", "inline-consumers", "scalars", "threads", "tiles", "tiles-gpu"),
    *("tiles-vectors", "vnni", "wmma", "mma", "unroll", "anywhere"),
}
"""One for each rule; the others are long."""


def cases(*, parts: int) -> list[Any]:
    """What rules are applied to, the first parts of each."""
    return [
        pytest.param(*case[:parts], id=name, marks=() if name in EACH_TIME else (long,))
        for name, *case in APPLY
    ]


applying = pytest.mark.parametrize(
    ("made", "program", "target", "count", "instruction"), cases(parts=5)
)


@pytest.fixture(scope="module", autouse=True)
def intrinsics() -> None:
    register("cuda", "arm_cpu", "x86", "dot_product_common")


@applying
def test_a_rule_gives_the_sketches_that_it_gives_metaschedule(
    made: Made, program: str, target: str, count: int, instruction: str
) -> None:
    of = task(program, target)
    theirs = stock_sketches(of, post_order(made()))
    ours = our_space(of, space.rules(*made(), stock=False)).sketches
    assert outlines(ours) == outlines(theirs)
    assert len(theirs) == count
    assert instruction in set().union(*map(kinds, theirs)), "the rule was applied"


@applying
def test_the_same_decisions_are_the_same_program_to_both(
    made: Made, program: str, target: str, count: int, instruction: str
) -> None:
    of = task(program, target)
    mine = our_space(of, space.rules(*made(), stock=False, postprocs=list))
    theirs = stock_sketches(of, post_order(made()))
    schedules = [redrawn(of, sketch, seed) for sketch in theirs for seed in (3,)]
    applied = [schedule for schedule in schedules if schedule is not None]
    assert applied
    for schedule in applied:
        assert our_answer(mine, schedule.trace) == stock_answer(schedule, [])


@pytest.mark.parametrize(("made", "program", "target"), cases(parts=3))
def test_what_we_draw_is_a_point_of_metaschedules_sketches(
    made: Made, program: str, target: str
) -> None:
    of = task(program, target)
    mine = our_space(of, space.rules(*made(), stock=False, postprocs=list))
    known = outlines(stock_sketches(of, post_order(made())))
    found = [replay(task_module(of.module), each.payload) for each in drawn(of, mine, 2)]
    assert found
    assert {outline(schedule.trace) for schedule in found} <= {*known}


@pytest.mark.parametrize(
    ("made", "program", "target"), [pytest.param(*case, id=name) for name, *case in KEEP]
)
def test_a_rule_leaves_alone_what_it_leaves_alone_in_metaschedule(
    made: Made, program: str, target: str
) -> None:
    of = task(program, target)
    (theirs,) = stock_sketches(of, post_order(made()))
    (ours,) = our_space(of, space.rules(*made(), stock=False)).sketches
    assert kinds(theirs.simplified(True)) == set() == kinds(ours.simplified(True))


@pytest.mark.parametrize(
    ("name", "target"), [("AddRFactor", LLVM), ("AutoBind", CUDA), ("RandomComputeLocation", LLVM)]
)
def test_a_rule_may_be_given_as_its_class(name: str, target: str) -> None:
    from tvm.s_tir.meta_schedule import schedule_rule

    rule = getattr(schedule_rule, name)
    of = task("chain", target)
    theirs = stock_sketches(of, post_order([rule()]))
    assert outlines(our_space(of, space.rules(rule, stock=False)).sketches) == outlines(theirs)


def test_one_object_serves_a_task_after_the_other() -> None:
    (rule,) = TILES()
    part = space.rules(rule, stock=False)
    for program in ("matmul", "matmul_relu", "matmul"):
        of = task(program, LLVM)
        theirs = stock_sketches(of, post_order(TILES()))
        assert outlines(our_space(of, part).sketches) == outlines(theirs)


def test_a_block_may_name_the_function_that_schedules_it() -> None:
    import tvm
    from tvm.s_tir.meta_schedule.schedule_rule import ApplyCustomRule

    def in_rows(sch: Any, block: Any) -> list[Any]:
        rows, *_ = sch.get_loops(block)
        other = sch.copy()
        other.split(rows, other.sample_perfect_tile(rows, 2, 16))
        return [sch, other]

    tvm.register_global_func("s_tir.meta_schedule.cpu.compatibility_rows", in_rows, override=True)
    of = task("named_rule", LLVM)
    theirs = stock_sketches(of, post_order([ApplyCustomRule()]))
    assert outlines(our_space(of, space.rules(ApplyCustomRule, stock=False)).sketches) == outlines(
        theirs
    )
    assert len(theirs) == 2


def test_a_function_that_a_block_names_may_raise_in_both() -> None:
    import tvm
    from tvm.s_tir.meta_schedule.schedule_rule import ApplyCustomRule

    def refuse(sch: Any, block: Any) -> list[Any]:
        raise ValueError("not this block")

    tvm.register_global_func("s_tir.meta_schedule.cpu.compatibility_rows", refuse, override=True)
    of = task("named_rule", LLVM)
    mine = our_space(of, space.rules(ApplyCustomRule, stock=False))
    with pytest.raises(ValueError, match="not this block"):
        stock_sketches(of, post_order([ApplyCustomRule()]))
    with pytest.raises(ValueError, match="not this block"):
        len(mine.sketches)
