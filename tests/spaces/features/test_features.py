"""Features: one length for any program, the same anywhere, and they say what they claim."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from spaces.features.loop_nest import Access, Loop, LoopKind, Nest, heaviest_nest
from spaces.features.nest_features import NEST_LENGTH, nest_vector
from spaces.features.vectors import FEATURE_LENGTH, FeatureExtractor, describe
from tuner.candidate import Draft
from tuner.task import Task

LLVM = '{"kind":"llvm","num-cores":2}'
CUDA = (
    '{"arch":"sm_80","kind":"cuda","max_num_threads":1024,"max_shared_memory_per_block":49152,'
    '"max_threads_per_block":1024,"registers_per_block":65536,"thread_warp_size":32}'
)


def task(kind: str, target: str = LLVM) -> Task:
    from tvm import te, topi

    from spaces.lowering.extract_tasks import task_of

    a = te.placeholder((64, 64), name="a")
    if kind == "gemm":
        arguments = [a, b := te.placeholder((64, 64), name="b"), topi.nn.matmul(a, b)]
    elif kind == "softmax":
        arguments = [a, topi.nn.softmax(a)]
    elif kind == "transpose":
        arguments = [a, topi.transpose(a)]
    elif kind == "scalar":
        arguments = [s := te.placeholder((), name="s"), topi.exp(s)]
    else:
        data, weight = te.placeholder((1, 8, 14, 14)), te.placeholder((16, 8, 3, 3))
        arguments = [data, weight, topi.nn.relu(topi.nn.conv2d_nchw(data, weight, 1, 1, 1))]
    return task_of(te.create_prim_func(arguments), target, name=kind)


def sampled(what: Task, count: int) -> list[Any]:
    from spaces.design_space.trace_space import TraceSpace
    from spaces.ir.schedules import InvalidCandidate

    space, rng, schedules = TraceSpace(what), random.Random(0), []
    while len(schedules) < count:
        draft = Draft(what.key, len(schedules), rng.randrange(2**31))
        try:
            schedules.append(space.realize_draft(draft).schedule)
        except InvalidCandidate:
            continue
    return schedules


def tiled() -> Any:
    """A GEMM of 64 with loops i0 j0 k0 k1 i1 j1: i0 parallel over 16 pieces, j1 of 8 lanes."""
    from spaces.ir.schedules import new_schedule, task_module

    schedule = new_schedule(task_module(task("gemm").module))
    block = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    i, j, k = schedule.get_loops(block)
    i0, i1 = schedule.split(i, [16, 4])
    j0, j1 = schedule.split(j, [8, 8])
    k0, k1 = schedule.split(k, [32, 2])
    schedule.reorder(i0, j0, k0, k1, i1, j1)
    schedule.parallel(i0)
    schedule.vectorize(j1)
    schedule.annotate(i0, "pragma_auto_unroll_max_step", 16)
    return schedule


@pytest.mark.tvm
class TestExtractor:
    @pytest.mark.parametrize("kind", ["gemm", "conv", "softmax", "transpose", "scalar"])
    def test_one_finite_vector_of_one_length_for_each_schedule(self, kind: str) -> None:
        what = task(kind)
        vectors = FeatureExtractor(LLVM).extract(what.module, sampled(what, 4))
        assert len(vectors) == 4
        for vector in vectors:
            assert vector.shape == (FEATURE_LENGTH,)
            assert vector.dtype == np.float32
            assert np.isfinite(vector).all()
            assert vector.any()

    def test_gpu_programs_have_the_same_length(self) -> None:
        what = task("gemm", CUDA)
        (vector,) = FeatureExtractor(CUDA).extract(what.module, sampled(what, 1))
        assert vector.shape == (FEATURE_LENGTH,)
        assert vector.any()

    def test_a_vector_does_not_depend_on_its_neighbours(self) -> None:
        what = task("conv")
        schedules = sampled(what, 3)
        together = FeatureExtractor(LLVM).extract(what.module, schedules)
        alone = [FeatureExtractor(LLVM).extract(what.module, [s])[0] for s in schedules]
        np.testing.assert_array_equal(together, alone)

    def test_no_schedules_no_vectors(self) -> None:
        assert FeatureExtractor(LLVM).extract(task("gemm").module, []) == []

    def test_what_cannot_be_lowered_is_zeros_and_harms_no_other(self) -> None:
        what = task("gemm")
        (good,) = sampled(what, 1)
        # TVM fails a whole batch for one bad program; which ones are bad is its own affair.
        bad, extractor = tiled(), FeatureExtractor(LLVM)
        extractor._extract_together = _refusing(extractor._extract_together, bad)  # type: ignore[method-assign]
        first, second = extractor.extract(what.module, [bad, good])
        assert not first.any()
        np.testing.assert_array_equal(second, extractor.extract(what.module, [good])[0])


def _refusing(extract: Any, bad: Any) -> Any:
    def refuse(context: Any, schedules: Any) -> Any:
        from tvm.error import InternalError

        if any(s is bad for s in schedules):
            raise InternalError("cannot be lowered")
        return extract(context, schedules)

    return refuse


@pytest.mark.tvm
class TestLoopNest:
    def test_reads_the_loops_and_how_they_move(self) -> None:
        nest = heaviest_nest(tiled().mod["main"])
        assert nest is not None
        assert [loop.extent for loop in nest.loops] == [8, 4, 2, 32, 8, 16]
        assert [loop.reduces for loop in nest.loops] == [False, False, True, True, False, False]
        assert nest.loops[0].kind == LoopKind.VECTORIZED
        assert nest.loops[-1].kind == LoopKind.PARALLEL
        assert nest.unroll_step == 16
        written, a, b = nest.accesses
        assert written.strides == (1, 64, 0, 0, 8, 256)
        assert a.strides == (0, 64, 1, 2, 0, 256)
        assert b.strides == (1, 0, 64, 128, 8, 0)
        assert written.distinct == (8, 4, 1, 1, 8, 16)
        assert (b.elements, b.item_bytes) == (64 * 64, 4)

    def test_follows_loops_that_were_fused(self) -> None:
        schedule = tiled()
        block = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
        schedule.fuse(*schedule.get_loops(block)[2:4])
        nest = heaviest_nest(schedule.mod["main"])
        assert nest is not None
        assert [loop.extent for loop in nest.loops] == [8, 4, 64, 8, 16]
        assert nest.accesses[1].strides[2] == 1
        assert nest.accesses[1].distinct[2] == 64

    def test_a_program_without_loops_has_none(self) -> None:
        from spaces.ir.schedules import task_module

        assert heaviest_nest(task_module(task("scalar").module)["main"]) is None


def nest(*loops: tuple[int, LoopKind, bool]) -> Nest:
    """The loops given, innermost first, over a buffer that they walk through in order."""
    extents = [extent for extent, _, _ in loops]
    strides = tuple(int(np.prod(extents[:i])) for i in range(len(extents)))
    access = Access(strides, tuple(extents), int(np.prod(extents)), 4)
    return Nest(tuple(Loop(*loop) for loop in loops), (access,), unroll_step=0)


class TestNestVector:
    def test_nothing_is_zeros(self) -> None:
        assert not nest_vector(None, 2).any()
        assert nest_vector(None, 2).shape == (NEST_LENGTH,)

    @pytest.mark.parametrize("depth", [0, 1, 11, 12, 13, 20])
    def test_any_depth_has_one_length(self, depth: int) -> None:
        vector = nest_vector(nest(*[(2, LoopKind.SERIAL, False)] * depth), 2)
        assert vector.shape == (NEST_LENGTH,)
        assert np.isfinite(vector).all()

    def test_tells_order_apart(self) -> None:
        inner = nest((8, LoopKind.VECTORIZED, False), (4, LoopKind.SERIAL, True))
        outer = nest((4, LoopKind.SERIAL, True), (8, LoopKind.VECTORIZED, False))
        assert (nest_vector(inner, 2) != nest_vector(outer, 2)).any()

    def test_tells_how_evenly_the_cores_are_filled(self) -> None:
        three = nest((8, LoopKind.SERIAL, False), (3, LoopKind.PARALLEL, False))
        assert (nest_vector(three, 2) != nest_vector(three, 3)).sum() == 1
        assert np.isclose(nest_vector(three, 2), 4 / 3).any()


class TestDescribe:
    def test_takes_the_store_that_computes_most_and_the_sum(self) -> None:
        stores = np.zeros((3, 172), np.float32)
        stores[:, 1] = [3.0, 9.0, 0.0]
        stores[:, 100] = [1.0, 2.0, 4.0]
        vector = describe(stores, np.zeros(NEST_LENGTH, np.float32))
        assert vector[100] == 2.0
        assert vector[172 + 100] == 7.0
        assert vector[2 * 172] == 3.0

    def test_no_stores_no_features(self) -> None:
        stores = np.zeros((0, 172), np.float32)
        assert not describe(stores, np.ones(NEST_LENGTH, np.float32)).any()
