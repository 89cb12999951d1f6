"""Conversions from and to floats of 8 bits: of each code, and of numbers around each step."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from spaces.check.elements.operations import cast_to
from spaces.check.whole_program import compile_unscheduled
from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.targets.target import emulate_target, resolve_target

pytestmark = pytest.mark.tvm

Array = npt.NDArray[Any]
KINDS = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}


def convert(x: Array, kind: str, how: str) -> Array:
    """A tensor in another type, by a program that is compiled in one of the ways there are."""
    import tvm
    from tvm import te

    given = te.placeholder(x.shape, str(x.dtype), name="x")
    made = te.compute(x.shape, lambda i: given[i].astype(kind), "y")
    module = tvm.IRModule({"main": te.create_prim_func([given, made])})
    if how == "reference":
        run = compile_unscheduled(module)["main"]
    elif how == "cpu":
        run = load_kernel(build_artifact(module, resolve_target("llvm"))).module["main"]
    else:
        schedule = tvm.s_tir.Schedule(module)
        (loop,) = schedule.get_loops(schedule.get_sblock("y"))
        block, thread = schedule.split(loop, [None, 32])
        schedule.bind(block, "blockIdx.x")
        schedule.bind(thread, "threadIdx.x")
        target = emulate_target('{"kind":"cuda","arch":"sm_89"}')
        run = load_kernel(build_artifact(schedule.mod, target)).module["main"]
    out = tvm.runtime.tensor(np.zeros(x.shape, KINDS.get(kind, kind)))
    run(tvm.runtime.tensor(x), out)
    found: Array = out.numpy()
    return found


@pytest.mark.each_value
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["reference", "cpu", "device"])
def test_each_is_read_as_the_number_it_is(how: str, kind: str) -> None:
    codes = np.arange(256, dtype=np.uint8).view(KINDS[kind])
    np.testing.assert_array_equal(convert(codes, "float32", how), codes.astype(np.float32))


@pytest.mark.each_value
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["reference", "cpu", "device", "elements"])
def test_numbers_are_rounded_to_the_nearest_and_to_none_beyond_the_largest(
    how: str, kind: str
) -> None:
    steps = np.arange(256, dtype=np.uint8).view(KINDS[kind]).astype(np.float32)
    steps = np.unique(steps[np.isfinite(steps)])
    halfway = (steps[1:] + steps[:-1]) / 2
    around = [halfway, *(np.nextafter(halfway, np.float32(far)) for far in (-np.inf, np.inf))]
    beyond = np.array([465, 480, 1e5, 3e38, np.inf, 61440, 1e-30, -0.0], np.float32)
    x = np.concatenate([steps, *around, beyond, -beyond, [np.float32(np.nan)]])
    most = steps.max()
    wanted = np.clip(x, -most, most).astype(KINDS[kind])
    got = cast_to(kind)(x) if how == "elements" else convert(x, kind, how)
    np.testing.assert_array_equal(got.astype(np.float32), wanted.astype(np.float32))
    zeros = wanted.astype(np.float32) == 0
    assert np.array_equal(np.signbit(got[zeros]), np.signbit(x[zeros]))
