"""Divisions become products with a reciprocal, but for those that a step is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spaces.passes.arithmetic.reciprocals import with_reciprocals

pytestmark = pytest.mark.tvm

ROWS, LANES = 64, 64
Array = np.ndarray[Any, Any]


def program(make: Callable[[Any], Any]) -> Any:
    """What is made of a quotient that is a tensor of its own, by a scale that all lanes share."""
    import tvm
    from tvm import te

    a = te.placeholder((ROWS, LANES), name="a")
    scale = te.placeholder((ROWS,), name="scale")
    quotient = te.compute(a.shape, lambda i, j: a[i, j] / scale[i], name="quotient")
    out = te.compute(a.shape, lambda i, j: make(quotient[i, j]), name="out")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([a, scale, out]))
    for name in ("quotient", "out"):
        schedule.vectorize(schedule.get_loops(schedule.get_sblock(name))[-1])
    return schedule


def floored(x: Any) -> Any:
    from tvm import tirx

    return tirx.floor(x)


def cast(x: Any) -> Any:
    return x.astype("int32")


def clipped(x: Any) -> Any:
    from tvm import tirx

    low = tirx.const(-40.0, "float32")
    return tirx.Max(tirx.floor(x + tirx.const(3.0, "float32")), low).astype("int8")


def ran(module: Any, a: Array, scale: Array, kind: str) -> Array:
    import tvm

    library = tvm.compile(module, target=tvm.target.Target({"kind": "llvm"}))
    out = tvm.runtime.tensor(np.zeros(a.shape, kind))
    library["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(scale), out)
    result: Array = out.numpy()
    return result


@pytest.mark.each_value
@pytest.mark.parametrize("inlined", [False, True])
@pytest.mark.parametrize(
    ("make", "kind"), [(floored, "float32"), (cast, "int32"), (clipped, "int8")]
)
def test_what_is_rounded_to_a_step_is_divided(
    make: Callable[[Any], Any], kind: str, inlined: bool
) -> None:
    """Of multiples of the scale a product with the reciprocal often lies just below the step."""
    import tvm

    schedule = program(make)
    if inlined:
        schedule.compute_inline(schedule.get_sblock("quotient"))
    function = schedule.mod["main"]
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.01, 1, ROWS).astype(np.float32)
    a = rng.integers(1, 100, (ROWS, LANES)).astype(np.float32) * scale[:, None]
    got = ran(tvm.IRModule({"main": with_reciprocals(function)}), a, scale, kind)
    np.testing.assert_array_equal(got, ran(schedule.mod, a, scale, kind))
    assert with_reciprocals(function).same_as(function)
    products = a * (np.float32(1) / scale)[:, None]
    assert (np.floor(products) != np.floor(a / scale[:, None])).any(), "nothing would show it"


def test_other_quotients_are_products() -> None:
    schedule = program(lambda x: x + 1)
    function = schedule.mod["main"]
    made = with_reciprocals(function)
    assert not made.same_as(function)
    assert "T.float32(1.0) / scale" in made.script()
