"""Programs of bfloat16 with exponentials compute what numpy does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spaces.ir.element_types import numpy_dtype
from spaces.ir.schedules import new_schedule
from spaces.passes.bf16.arithmetic import with_wide_arithmetic
from spaces.passes.cpu_passes import before_compile
from spaces.targets import llvm
from spaces.targets.target import parse_target, resolve_target

pytestmark = pytest.mark.tvm
BF16 = numpy_dtype("bfloat16")
WIDE = '{"kind":"llvm","mcpu":"skylake-avx512","num-cores":2}'
CPU = resolve_target("llvm", cores=2) if llvm.missing(WIDE, None) else WIDE
"""With vectors of 512 bits, where this machine has them."""
ROWS, COLUMNS = 7, 48
Array = Any
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-38, -1e-38, 3e38, -29.375, 88.5, -88.5, 0.5]


def wide(x: Any) -> Any:
    return x.astype("float32")


def sigmoid(x: Any) -> Any:
    from tvm import tirx

    return tirx.sigmoid(x)


def gate(x: Any, y: Any) -> Any:
    return (wide(x) * sigmoid(wide(x))).astype("bfloat16") * y


def chosen(x: Any, y: Any) -> Any:
    from tvm import tirx

    return tirx.Select(x < y, sigmoid(wide(x)).astype("bfloat16"), tirx.max(x, y) + x)


def guarded(x: Any, y: Any) -> Any:
    from tvm import tirx

    zero = tirx.const(0, "bfloat16")
    return tirx.if_then_else(wide(y) > 0.5, sigmoid(wide(x)).astype("bfloat16"), zero)


def copied(x: Any, y: Any) -> Any:
    from tvm import tirx

    return tirx.if_then_else(sigmoid(wide(y)) > 0.5, x, tirx.const(1, "bfloat16"))


def floats(x: Any, y: Any) -> Any:
    return sigmoid(wide(x)) + wide(y)


def halves(x: Any, y: Any) -> Any:
    return sigmoid(x) * y


def root(x: Any, y: Any) -> Any:
    from tvm import tirx

    return tirx.sqrt(x * x) - sigmoid(wide(y)).astype("bfloat16")


def numpy_sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


NUMPY: dict[Callable[..., Any], Callable[..., Array]] = {
    gate: lambda x, y: x * numpy_sigmoid(x) * y,
    chosen: lambda x, y: np.where(x < y, numpy_sigmoid(x), np.maximum(x, y) + x),
    guarded: lambda x, y: np.where(y > 0.5, numpy_sigmoid(x), 0.0),
    copied: lambda x, y: np.where(numpy_sigmoid(y) > 0.5, x, 1.0),
    floats: lambda x, y: numpy_sigmoid(x) + y,
    halves: lambda x, y: numpy_sigmoid(x) * y,
    root: lambda x, y: np.abs(x) - numpy_sigmoid(y),
}


def program(body: Callable[..., Any], *, staged: bool) -> Any:
    """A module that computes it, after what it computes went through a tensor if `staged`."""
    from tvm import te
    from tvm.ir import IRModule

    x, y = (te.placeholder((ROWS, COLUMNS), "bfloat16", name=name) for name in "xy")
    out = te.compute(x.shape, lambda *at: body(x[at], y[at]), name="out")
    if staged:
        out = te.compute(x.shape, lambda *at: out[at] * x[at].astype(out.dtype), name="last")
    return IRModule({"main": te.create_prim_func([x, y, out])})


def vectorise(module: Any) -> Any:
    schedule = new_schedule(module)
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        schedule.vectorize(schedule.split(schedule.get_loops(block)[-1], [None, 16])[-1])
    return schedule.mod


def compute(module: Any, *arrays: Array, out: Array) -> Array:
    import tvm

    library = tvm.compile(before_compile(module), target=parse_target(CPU))
    tensors = [tvm.runtime.tensor(array) for array in (*arrays, out)]
    library["main"](*tensors)
    return tensors[-1].numpy().astype("float64")


@pytest.mark.each_value
@pytest.mark.parametrize("vectors", [False, True], ids=["one by one", "vectors"])
@pytest.mark.parametrize("staged", [False, True], ids=["at once", "staged"])
@pytest.mark.parametrize("body", NUMPY, ids=lambda body: body.__name__)
def test_it_computes_what_numpy_does(body: Any, staged: bool, vectors: bool) -> None:
    random = np.random.default_rng(3)
    x, y = ((random.standard_normal((ROWS, COLUMNS)) * 8).astype(BF16) for _ in range(2))
    module = program(body, staged=staged)
    blank = np.full(x.shape, 77, np.float32 if body is floats else BF16)
    got = compute(vectorise(module) if vectors else module, x, y, out=blank)
    want = NUMPY[body](x.astype("float64"), y.astype("float64"))
    want = want * x.astype("float64") if staged else want
    np.testing.assert_allclose(got, want, rtol=2**-6, atol=1e-30)


def test_what_is_no_usual_number_is_what_numpy_has() -> None:
    x = np.zeros((ROWS, COLUMNS), BF16)
    x[0, : len(EDGES)] = EDGES
    got = compute(program(gate, staged=False), x, np.ones_like(x), out=np.zeros_like(x))
    with np.errstate(invalid="ignore"):
        want = NUMPY[gate](x.astype("float64"), 1.0)
    np.testing.assert_allclose(got, want, rtol=2**-6, atol=1e-30)


def test_what_it_stores_is_the_nearest_bfloat16() -> None:
    random = np.random.default_rng(4)
    x = random.standard_normal((ROWS, COLUMNS)).astype(BF16)
    got = compute(program(guarded, staged=False), x, np.ones_like(x), out=np.zeros_like(x))
    exact = numpy_sigmoid(x.astype("float64"))
    nearest = exact.astype(np.float32).astype(BF16).astype("float64")
    assert (got == nearest).mean() > 0.99  # but where an ulp of float32 decides
    assert np.abs(got - exact).max() <= np.abs(nearest - exact).max() * 1.01


def test_a_program_without_exponentials_stays_as_it_is() -> None:
    function = program(lambda x, y: x * y + x, staged=True)["main"]
    assert with_wide_arithmetic(function).same_as(function)
