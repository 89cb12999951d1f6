"""What no thread of a GPU runs would be run by the host, on addresses of the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, run_once
from spaces.ir.schedules import new_schedule
from spaces.lowering.lower import lower
from spaces.passes.cuda.host_loops import refuse_host_loops
from spaces.targets.target import emulate_target, resolve_target
from tests.needed import needs_nvcc
from tests.spaces.lowering.test_host_results import graph, relax_op

pytestmark = pytest.mark.tvm

CUDA = resolve_target('{"kind":"cuda","arch":"sm_80"}')


def sums(bound: bool) -> Any:
    """Two loops one after the other; the first is bound to threads."""
    from tvm import te

    x = te.placeholder((64, 64), name="x")
    y = te.compute((64, 64), lambda i, j: x[i, j] + 1.0, name="y")
    z = te.compute((64, 64), lambda i, j: y[j, i] * 2.0, name="z")
    schedule = new_schedule(te.create_prim_func([x, z]))
    for name in ("y", "z") if bound else ("y",):
        rows, columns = schedule.get_loops(schedule.get_sblock(name))
        schedule.bind(rows, "blockIdx.x")
        schedule.bind(columns, "threadIdx.x")
    return schedule.mod


def test_a_loop_that_is_bound_to_no_thread_is_refused_by_name() -> None:
    refuse_host_loops(sums(bound=True))
    with pytest.raises(ValueError, match="main: a loop that fills z is bound to no thread"):
        refuse_host_loops(sums(bound=False))


@needs_nvcc
@pytest.mark.each_value
@pytest.mark.parametrize("axis", [0, 1, 2, -2])
@pytest.mark.parametrize("name", ["sort", "argsort", "topk"])
def test_sorting_along_any_axis_is_done_by_threads(name: str, axis: int) -> None:
    """An H100's process ended in a host's loop that transposed what was to be sorted."""
    operator = {
        "sort": lambda x: relax_op().sort(x, axis, True),
        "argsort": lambda x: relax_op().argsort(x, axis, dtype="int64"),
        "topk": lambda x: relax_op().topk(x, k=2, axis=axis, ret_type="both"),
    }[name]
    compile_module(lower(graph(operator, (3, 4, 5)), CUDA), CUDA)


def test_what_was_sorted_along_another_axis_comes_back_in_its_place() -> None:
    emulated, x = emulate_target(CUDA), np.random.default_rng(0).permutation(60).astype("float32")
    x = x.reshape(3, 4, 5)

    def sort(tensor: Any) -> Any:
        return relax_op().topk(tensor, k=2, axis=1, ret_type="both")

    values, places = run_once(
        compile_module(lower(graph(sort, (3, 4, 5)), emulated), emulated), [x]
    )
    order = np.argsort(-x, axis=1)[:, :2]
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))
