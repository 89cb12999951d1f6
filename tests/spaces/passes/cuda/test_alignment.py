"""Vectors are read, written and copied only at multiples of their size."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.design_space.trace_space import TraceSpace
from spaces.emulation.buffers import call_zoned
from spaces.lowering.extract_tasks import task_of
from spaces.passes.cuda.alignment import CopyWatch
from spaces.passes.cuda.pipeline import pass_config
from spaces.targets.target import parse_target
from tests.spaces.emulation import rule_samples
from tests.spaces.emulation.samples import AMPERE, Sample, check

pytestmark = pytest.mark.tvm


def rows_of_odd_size() -> Any:
    """Operands whose rows begin at no multiple of a vector."""
    return rule_samples.product(100, 333, 517, "float32", "float32")


def weights_apart() -> Any:
    """A convolution that reads weights nine elements from each other."""
    from tvm import te, topi

    x, w = te.placeholder((1, 16, 28, 28), name="x"), te.placeholder((16, 16, 3, 3), name="w")
    return te.create_prim_func([x, w, topi.nn.conv2d_nchw(x, w, 1, 1, 1)])


def is_uneven(sample: Sample) -> bool:
    """Whether TVM alone makes instructions of copies that no device can make at once."""
    import tvm

    watch, target = CopyWatch(), parse_target(AMPERE)
    with tvm.transform.PassContext(config=pass_config(target), instruments=[watch.instrument()]):
        tvm.compile(sample.module, target=target)
    return watch.uneven == ["main"]


@pytest.mark.parametrize("program", [rows_of_odd_size, weights_apart])
def test_what_no_device_copies_at_once_is_loaded_and_stored(program: Any) -> None:
    task = task_of(program(), AMPERE, name="uneven")
    found = list(islice(filter(is_uneven, rule_samples.drawn(task, 40, TraceSpace(task))), 2))
    assert len(found) == 2
    for sample in found:
        assert check(sample) == []


@pytest.mark.parametrize(("step", "wide"), [(5, False), (8, True)])
def test_a_vector_is_written_at_once_where_that_is_at_a_multiple_of_its_size(
    step: int, wide: bool
) -> None:
    from tvm.ir import IRModule
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def main(a_ptr: T.handle, b_ptr: T.handle) -> None:
        a = T.match_buffer(a_ptr, (64,), "float32")
        b = T.match_buffer(b_ptr, (64 * step,), "float32")
        for thread in T.thread_binding(16, "threadIdx.x"):
            for lane in T.vectorized(4):
                with T.sblock("b"):
                    i, j = T.axis.remap("SS", [thread, lane])
                    b[i * step + j] = a[i * 4 + j] + T.float32(1)

    artifact = build_artifact(IRModule({"main": main}), AMPERE)
    kernel = load_kernel(artifact)
    values = np.arange(64, dtype=np.float32)
    empty = np.zeros(64 * step, np.float32)
    _, got = call_zoned(kernel.module["main"], [values, empty])
    wanted = empty.copy()
    for i in range(16):
        wanted[i * step : i * step + 4] = values[i * 4 : i * 4 + 4] + 1
    np.testing.assert_array_equal(got, wanted)
    assert (kernel_source(main).count("*(float4*)(b_ptr") == 1) == wide


def kernel_source(function: Any) -> str:
    """Its CUDA C."""
    from tvm.ir import IRModule

    from spaces.codegen.artifact import compile_kernel

    library, _ = compile_kernel(IRModule({"main": function}), parse_target(AMPERE))
    return "".join(m.inspect_source("cuda") for m in library.imports if m.kind == "cuda")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_three_halves_which_no_vector_has_are_copied_one_by_one(dtype: str) -> None:
    import ml_dtypes
    from tvm.ir import IRModule
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def main(a_ptr: T.handle, b_ptr: T.handle) -> None:
        a = T.match_buffer(a_ptr, (96,), dtype)
        b = T.match_buffer(b_ptr, (96,), dtype)
        for thread in T.thread_binding(32, "threadIdx.x"):
            for lane in T.vectorized(3):
                with T.sblock("b"):
                    i, j = T.axis.remap("SS", [thread, lane])
                    b[i * 3 + j] = a[i * 3 + j]

    kernel = load_kernel(build_artifact(IRModule({"main": main}), AMPERE))
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    values = np.arange(96).astype(kind)
    _, got = call_zoned(kernel.module["main"], [values, np.zeros(96, kind)])
    np.testing.assert_array_equal(got, values)


def copy_by_eights(rows: int, columns: int, given: int) -> Any:
    """A copy of halves, eight a thread, out of a tensor with `given` columns."""
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def main(a_ptr: T.handle, b_ptr: T.handle) -> None:
        a = T.match_buffer(a_ptr, (rows, given), "float16")
        b = T.match_buffer(b_ptr, (rows, columns), "float16")
        for thread in T.thread_binding(rows * columns // 8, "threadIdx.x"):
            for lane in T.vectorized(8):
                with T.sblock("b"):
                    i = T.axis.spatial(rows, (thread * 8 + lane) // columns)
                    j = T.axis.spatial(columns, (thread * 8 + lane) % columns)
                    b[i, j] = a[i, j]

    return main


def test_eight_halves_of_two_rows_are_copied_one_by_one() -> None:
    from tvm.ir import IRModule

    module = IRModule({"main": copy_by_eights(24, 12, given=20)})
    kernel = load_kernel(build_artifact(module, AMPERE))
    values = np.arange(24 * 20, dtype=np.float16).reshape(24, 20)
    _, got = call_zoned(kernel.module["main"], [values, np.zeros((24, 12), np.float16)])
    np.testing.assert_array_equal(got, values[:, :12])


def test_three_floats_of_two_rows_are_copied_one_by_one() -> None:
    """The rules for tensor cores copy sums so, and TVM fails to bound what such a vector reads."""
    task = task_of(rule_samples.product(96, 96, 32, "float16", "float32"), AMPERE, name="three")
    drawn = rule_samples.drawn(task, 40, TraceSpace(task))
    three = [s for s in drawn if "vectorized(3)" in s.module.script()]
    assert len(three) >= 3
    assert [error for sample in three for error in check(sample)] == []


def test_eight_halves_in_a_row_are_copied_at_once() -> None:
    assert kernel_source(copy_by_eights(8, 48, given=48)).count("*(uint4*)(") == 2
