"""Sums over several threads are written only where there is room."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.codegen.executable import compile_plainly
from spaces.emulation.buffers import call_zoned
from spaces.passes.cuda.guarded_sums import guard_sums
from tests.spaces.emulation.samples import AMPERE

pytestmark = pytest.mark.tvm
_ROWS, _DEPTH = 1000, 64


def row_sums() -> Any:
    """Sums of 1000 rows, 16 to a block, each by eight threads."""
    from tvm import te
    from tvm.ir import IRModule
    from tvm.s_tir import Schedule

    a = te.placeholder((_ROWS, _DEPTH), name="a")
    k = te.reduce_axis((0, _DEPTH), "k")
    b = te.compute((_ROWS,), lambda i: te.sum(a[i, k], k), "b")
    schedule = Schedule(IRModule({"main": te.create_prim_func([a, b])}))
    row, depth = schedule.get_loops(schedule.get_sblock("b"))
    block, within = schedule.split(row, [None, 16])
    lane, _ = schedule.split(depth, [8, None])
    for loop, name in ((block, "blockIdx.x"), (within, "threadIdx.y"), (lane, "threadIdx.x")):
        schedule.bind(loop, name)
    return schedule.mod


def test_nothing_is_written_past_the_last_row() -> None:
    kernel = load_kernel(build_artifact(row_sums(), AMPERE))
    values = np.random.default_rng(0).standard_normal((_ROWS, _DEPTH)).astype("float32")
    _, got = call_zoned(kernel.module["main"], [values, np.zeros(_ROWS, np.float32)])
    np.testing.assert_allclose(got, values.sum(1), rtol=1e-4, atol=1e-4)


def test_the_untuned_program_of_a_bench_writes_nothing_past_the_last_row() -> None:
    from tvm import te, topi
    from tvm.ir import IRModule

    x, w = te.placeholder((_ROWS, 512), "float16", "x"), te.placeholder((1, 512), "float16", "w")
    module = IRModule({"main": te.create_prim_func([x, w, topi.nn.dense(x, w)])})
    library = compile_plainly(module, AMPERE).library
    ones = [np.ones(shape, np.float16) for shape in ((_ROWS, 512), (1, 512), (_ROWS, 1))]
    *_, got = call_zoned(library["main"], ones)
    np.testing.assert_array_equal(got, 512)


def test_other_blocks_stay_as_they_are() -> None:
    from tvm import te
    from tvm.ir import IRModule
    from tvm_ffi import structural_equal

    a = te.placeholder((8,), name="a")
    module = IRModule({"main": te.create_prim_func([a, te.compute((8,), lambda i: a[i] + 1, "b")])})
    assert structural_equal(guard_sums(module), module)
