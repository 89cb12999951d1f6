"""What is read from a sketch's decisions is what the device is asked for."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.proposals import TARGET
from spaces.codegen.artifact import build_artifact, kernels_of
from spaces.design_space.analysis.draws import draws, read_draws
from spaces.design_space.analysis.extents import Alignment, Extent, Reach, Tile
from spaces.design_space.analysis.interpreter import read_sketch
from spaces.design_space.analysis.launch import Launch
from spaces.design_space.analysis.tiles import number_of_tiles, perfect_tile
from spaces.design_space.schedule_rules import postprocess, task_rules
from spaces.design_space.trace_space import TraceSpace
from spaces.ir.schedules import InvalidCandidate, code_hash, new_schedule, task_module
from spaces.lowering.extract_tasks import task_of
from spaces.targets.gpu import gpu_of
from spaces.targets.target import resolve_target
from tests.needed import needs_nvcc
from tuner.candidate import Draft
from tuner.task import Task

_ENOUGH = 5


@given(
    st.integers(1, 4096),
    st.integers(1, 5),
    st.sampled_from([0, 1, 4, 16, 64]),
    st.integers(0, 2**31),
)
def test_a_perfect_tile_is_one(extent: int, parts: int, most: int, seed: int) -> None:
    factors = perfect_tile(extent, parts, most, random.Random(seed))
    assert (len(factors), prod(factors)) == (parts, extent)
    assert most == 0 or parts == 1 or factors[-1] <= most


def test_all_tiles_are_drawn() -> None:
    rng = random.Random(0)
    found = {tuple(perfect_tile(16, 2, 0, rng)) for _ in range(200)}
    assert found == {(16, 1), (8, 2), (4, 4), (2, 8), (1, 16)}


@pytest.mark.parametrize("most", [0, 1, 2, 3, 8, 100])
@pytest.mark.parametrize(("extent", "parts"), [(1, 3), (7, 2), (16, 2), (36, 3), (60, 4), (5, 1)])
def test_tiles_are_counted_without_making_them(extent: int, parts: int, most: int) -> None:
    sizes = product([n for n in range(1, extent + 1) if extent % n == 0], repeat=parts)
    found = [s for s in sizes if prod(s) == extent and (most == 0 or s[-1] <= most)]
    assert number_of_tiles(extent, parts, most) == len(found)


def test_the_size_of_a_tile_counts_its_padding() -> None:
    rows, columns = Reach(1, ((1, Extent(4, ((0, 0),))),)), Reach(16, ((16, Extent(2)),))
    draws_of = [[3]]
    assert Tile((rows, columns), 2).bytes(draws_of) == 2 * 12 * 32
    padded = Tile((rows, columns), 2, Alignment(-2, 32, 8))
    assert padded.bytes(draws_of) == 2 * 12 * 40


def test_a_launch_says_what_is_too_much() -> None:
    tile = Tile((Reach(1, ((1, Extent(1, ((0, 0),))),)),), 4)
    launch = Launch(
        replace(gpu_of(resolve_target(TARGET)), threads=512, shared_bytes=1024),
        {"threadIdx.x": Extent(1, ((0, 1),))},
        tiles=(tile,),
        versions=2,
        vectors=((Extent(1, ((2, 0),)), 4),),
        sums=Extent(2, ((3, 0),)),
        least=32,
    )
    assert launch.why_not([[128, 64], [8], [4], [64]]) == ""
    assert launch.why_not([[128, 16], [8], [4]]) == "16 threads"
    assert launch.why_not([[128, 1024], [8], [4]]) == "1024 threads"
    assert launch.why_not([[129, 64], [8], [4]]) == "1032 bytes of shared memory"
    assert launch.why_not([[128, 64], [8], [8]]) == "8 elements of a vector"
    assert launch.why_not([[128, 64], [8], [4], [128]]) == "256 registers of sums"
    assert launch.why_not([[64, 512], [8], [4], [64]]) == "128 registers of sums"


def test_a_tile_that_goes_backwards_asks_for_no_memory() -> None:
    tile = Tile((Reach(1, ((-1, Extent(1, ((0, 0),))),)),), 4)
    launch = Launch(gpu_of(resolve_target(TARGET)), {"threadIdx.x": Extent(64)}, tiles=(tile,))
    assert tile.bytes([[128]]) < 0
    assert launch.why_not([[128]]) == ""
    assert launch.count_excess([[128]]) == 0.0


def program(kind: str) -> Any:
    from tvm import te, topi

    if kind == "conv2d":
        x = te.placeholder((1, 28, 28, 64), name="x")
        w = te.placeholder((3, 3, 64, 96), name="w")
        return te.create_prim_func([x, w, topi.nn.conv2d_nhwc(x, w, 2, 1, 1)])
    m, n, k, dtype = {
        "float32": (1024, 1024, 1024, "float32"),
        "large": (2048, 2048, 2048, "float32"),
        "odd": (1000, 333, 517, "float32"),
        "float16": (1024, 1024, 1024, "float16"),
    }[kind]
    a, b = te.placeholder((m, k), dtype, name="a"), te.placeholder((k, n), dtype, name="b")
    return te.create_prim_func([a, b, topi.nn.matmul(a, b)])


@pytest.fixture(scope="module", params=["float32", "odd", "float16", "conv2d"])
def gpu_task(request: pytest.FixtureRequest) -> Task:
    return task_of(program(request.param), resolve_target(TARGET), name=request.param)


@pytest.mark.tvm
def test_nine_in_ten_proposals_pass_all_checks_of_tvm(gpu_task: Task) -> None:
    """Of random decisions one in twenty does."""
    space, points, refused = TraceSpace(gpu_task), [], 0
    for number in range(20):
        parent = points[number % len(points)].candidate if number > 9 and points else None
        try:
            point = space.realize_draft(Draft(gpu_task.key, number, number, parent))
            assert code_hash(space.write(point.candidate).mod) == point.code_hash
        except InvalidCandidate:
            refused += 1
            continue
        points.append(point)
    assert refused <= 2
    assert len({point.candidate.key for point in points}) >= 0.8 * len(points)


@pytest.mark.tvm
def test_decisions_within_the_limits_are_found_where_few_are() -> None:
    """One in some thousands of random ones, or fewer."""
    task = task_of(program("large"), resolve_target(TARGET), name="large")
    space = TraceSpace(task)
    found = [space.realize_draft(Draft(task.key, seed, seed)) for seed in range(12)]
    assert all(space.why_not(point.schedule.trace) == "" for point in found)
    assert len({point.code_hash for point in found}) == len(found)


@pytest.mark.tvm
def test_what_tvm_takes_is_not_refused(gpu_task: Task) -> None:
    """Random decisions of TVM's own that its post-processors take, which count no registers."""
    from tvm.s_tir.schedule import Trace

    space = TraceSpace(gpu_task)
    rules = task_rules(gpu_task.module, gpu_task.target)
    seen = 0
    for seed in range(1, 150):
        if seen == _ENOUGH:
            break
        sketch = space.sketches[seed % len(space.sketches)]
        schedule = new_schedule(task_module(gpu_task.module), seed)
        Trace(sketch.insts, {}).apply_to_schedule(schedule, True)
        trace = schedule.trace
        try:
            postprocess(schedule, rules)
        except InvalidCandidate:
            continue
        seen += 1
        assert re.fullmatch(r"|\d+ registers of sums", space.why_not(trace)), read_draws(trace)
    assert seen, "some of them pass"


@needs_nvcc
@pytest.mark.tvm
@pytest.mark.parametrize(
    ("kind", "threads", "own", "why_not"),
    [
        ("float32", (16, 8), (8, 16), ""),
        ("float32", (16, 8), (16, 16), "256 registers of sums"),
        ("float16", (2, 2), (4, 4), ""),
        ("float16", (2, 2), (8, 8), "256 registers of sums"),
    ],
)
def test_kernels_are_refused_whose_sums_do_not_fit_the_registers(
    kind: str, threads: tuple[int, int], own: tuple[int, int], why_not: str
) -> None:
    """Of tensor cores' 16 by 16 sums in halves each thread of a warp has four registers."""
    from tvm.s_tir.schedule import Trace

    task = task_of(program(kind), resolve_target(TARGET), name=kind)
    space = TraceSpace(task)
    sketch = space.sketches[0]
    rows, columns, terms, *others = filter(draws, sketch.insts)
    decided = {
        side: [prod(sketch.get_decision(side)) // (count * each), 1, count, each // 4, 4]
        for side, count, each in zip((rows, columns), threads, own, strict=True)
    }
    decided |= {terms: [prod(sketch.get_decision(terms)) // 2, 1, 2]} | dict.fromkeys(others, 0)
    trace = Trace(sketch.insts, decided)
    assert space.why_not(trace) == why_not
    schedule = new_schedule(task_module(task.module))
    trace.apply_to_schedule(schedule, True)
    postprocess(schedule, task_rules(task.module, task.target))
    (use,) = kernels_of(build_artifact(schedule.mod, task.target)).values()
    assert (use.spill_store_bytes + use.stack_bytes > 0) == bool(why_not)


@pytest.mark.tvm
def test_sketches_of_a_cpu_have_no_launch() -> None:
    task = task_of(program("odd"), resolve_target("llvm", cores=2), name="cpu")
    for sketch in TraceSpace(task).sketches:
        simple = sketch.simplified(True)
        assert any(map(draws, simple.insts))
        assert read_sketch(task_module(task.module), simple, gpu_of(task.target)) is None
