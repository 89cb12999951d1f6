"""Infinities and NaN of all types of floats are written as compilers know them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.emulation.buffers import call_zoned
from spaces.targets.target import emulate_target

pytestmark = pytest.mark.tvm
HOPPER = emulate_target('{"kind":"cuda","arch":"sm_90a"}')
TYPES = {
    **{name: np.dtype(name) for name in ("float16", "float32", "float64")},
    **{name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e5m2")},
}


@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_infinite_or_no_number_reaches_a_kernel(dtype: str) -> None:
    from tvm.ir import IRModule
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def main(a_ptr: T.handle, b_ptr: T.handle) -> None:
        a = T.match_buffer(a_ptr, (32,), dtype)
        b = T.match_buffer(b_ptr, (32,), dtype)
        for thread in T.thread_binding(32, "threadIdx.x"):
            with T.sblock("b"):
                i = T.axis.spatial(32, thread)
                b[i] = T.if_then_else(
                    i < 3,
                    a[i],
                    T.if_then_else(
                        i < 5,
                        T.Cast(dtype, T.float32(float("inf"))),
                        T.if_then_else(
                            i < 7,
                            T.Cast(dtype, T.float32(float("-inf"))),
                            T.Cast(dtype, T.float32(float("nan"))),
                        ),
                    ),
                )

    kernel = load_kernel(build_artifact(IRModule({"main": main}), HOPPER))
    ones = np.ones(32, TYPES[dtype])
    _, got = call_zoned(kernel.module["main"], [ones, np.zeros(32, TYPES[dtype])])
    wanted = [1.0] * 3 + [np.inf] * 2 + [-np.inf] * 2 + [np.nan] * 25
    if dtype == "float8_e5m2":  # the largest float takes the place of what is too large
        wanted = [min(max(value, -57344.0), 57344.0) for value in wanted]
    np.testing.assert_array_equal(got.astype(np.float64), wanted)
