"""Small tensors of a program are on the stack, where what nobody reads is not written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.passes.pipeline import tir_pipeline

pytestmark = pytest.mark.tvm

_ALLOCATE = "TVMBackendAllocWorkspace"


def doubled_rows(width: int, scope: str) -> Any:
    """Each row of 8 is doubled by way of a tensor of one row."""
    import tvm
    from tvm import te
    from tvm.s_tir import Schedule

    given = te.placeholder((8, width), name="given")
    twice = te.compute((8, width), lambda i, j: given[i, j] * 2, name="twice")
    program = te.create_prim_func([given, twice]).with_attr("global_symbol", "main")
    schedule = Schedule(tvm.IRModule({"main": program}))
    row = schedule.cache_write(schedule.get_sblock("twice"), 0, scope)
    schedule.reverse_compute_at(row, schedule.get_loops(schedule.get_sblock("twice"))[0])
    return schedule.mod


def compiled(module: Any) -> Any:
    import tvm

    from spaces.targets.target import parse_target, resolve_target

    target = parse_target(resolve_target("llvm", cores=1))
    return tvm.compile(module, target=target, tir_pipeline=tir_pipeline(target))


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("width", "allocated"), [(64, False), (300, False), (4096, False), (4097, True)]
)
@pytest.mark.parametrize("scope", ["local", "global"])
def test_up_to_16_kilobytes_nothing_is_allocated(width: int, allocated: bool, scope: str) -> None:
    import tvm

    library = compiled(doubled_rows(width, scope))
    assert (_ALLOCATE in library.mod.inspect_source("ll")) == allocated
    x = np.random.default_rng(1).uniform(-1, 1, (8, width)).astype("float32")
    out = tvm.runtime.tensor(np.full_like(x, np.nan))
    library["main"](tvm.runtime.tensor(x), out)
    np.testing.assert_array_equal(out.numpy(), 2 * x)


def test_a_tensor_of_symbolic_size_is_left_to_the_runtime() -> None:
    import tvm
    from tvm import te, tirx
    from tvm.s_tir import Schedule

    width = tirx.Var("n", "int64")
    given = te.placeholder((8, width), name="given")
    twice = te.compute((8, width), lambda i, j: given[i, j] * 2, name="twice")
    once = te.compute((8, width), lambda i, j: twice[i, j] + 1, name="once")
    program = te.create_prim_func([given, once]).with_attr("global_symbol", "main")
    library = compiled(Schedule(tvm.IRModule({"main": program})).mod)
    assert _ALLOCATE in library.mod.inspect_source("ll")
