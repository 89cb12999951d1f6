"""What is rounded to even and cast becomes one instruction that gives the same integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.passes.arithmetic.roundings import with_rounding_casts

pytestmark = pytest.mark.tvm

TIES = np.arange(-40, 40, dtype="float32") / 2
NEXT = np.nextafter(TIES, np.float32(np.inf)), np.nextafter(TIES, np.float32(-np.inf))
FAR = np.array(
    [2**23 - 0.5, 2**23 + 1, -(2**31), 2**31 - 128, 1e-40, -0.0] * 2 + [0.1] * 4, "float32"
)
NUMBERS = np.concatenate([TIES, *NEXT, FAR])


def program(round_it: Any, dtype: str = "float32", kind: str = "int32", lanes: int = 1) -> Any:
    import tvm
    from tvm import te

    x = te.placeholder((len(NUMBERS),), dtype, name="x")
    out = te.compute(x.shape, lambda i: round_it(x[i]).astype(kind), name="out")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, out]))
    if lanes > 1:
        (loop,) = schedule.get_loops(schedule.get_sblock("out"))
        schedule.vectorize(schedule.split(loop, [None, lanes])[1])
    return schedule.mod["main"]


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_halves_are_rounded_to_even(lanes: int) -> None:
    import tvm

    assert len(NUMBERS) % lanes == 0
    function = with_rounding_casts(program(tvm.tirx.nearbyint, lanes=lanes))
    assert "llvm.lrint" in function.script()
    library = tvm.compile(tvm.IRModule({"main": function}), target="llvm")
    out = tvm.runtime.tensor(np.zeros(NUMBERS.shape, "int32"))
    library["main"](tvm.runtime.tensor(NUMBERS), out)
    np.testing.assert_array_equal(out.numpy(), np.rint(NUMBERS).astype("int64"))


@pytest.mark.parametrize(
    ("operator", "dtype", "kind"),
    [
        ("nearbyint", "float64", "int32"),
        ("nearbyint", "float32", "int64"),
        ("nearbyint", "float32", "uint8"),
        ("floor", "float32", "int32"),
        ("sqrt", "float32", "int32"),
    ],
)
def test_all_else_stays_as_it_is(operator: str, dtype: str, kind: str) -> None:
    from tvm import tirx

    function = program(getattr(tirx, operator), dtype, kind)
    assert with_rounding_casts(function).same_as(function)
