"""Products of half that are summed in single compile on tensor cores."""

from __future__ import annotations

import re
from typing import Any

import pytest

from spaces.codegen.artifact import compile_kernel
from spaces.design_space.trace_space import TraceSpace
from spaces.ir.schedules import InvalidCandidate
from spaces.lowering.extract_tasks import task_of
from spaces.targets.target import parse_target, resolve_target
from tuner.candidate import Draft
from tuner.task import Task

pytestmark = pytest.mark.tvm

CUDA = '{"kind":"cuda","arch":"sm_80"}'


def product(m: int, n: int, k: int) -> Task:
    """As torch has it: operands and result in float16, sums in float32."""
    from tvm import te

    a, b = te.placeholder((m, k), "float16", name="a"), te.placeholder((k, n), "float16", name="b")
    along = te.reduce_axis((0, k), "k")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(a[i, along].astype("float32") * b[along, j].astype("float32"), along),
    )
    d = te.compute((m, n), lambda i, j: c[i, j].astype("float16"))
    return task_of(te.create_prim_func([a, b, d]), resolve_target(CUDA), name="product")


def scheduled(task: Task) -> Any:
    """The schedule of the first valid draft on tensor cores."""
    space = TraceSpace(task)
    for seed in range(40):
        try:
            schedule = space.write(space.realize_draft(Draft(task.key, seed, seed)).candidate)
        except InvalidCandidate:
            continue
        if "wmma" in str(schedule.mod):
            return schedule
    raise AssertionError("no draft uses tensor cores")


@pytest.mark.parametrize("sizes", [(512, 512, 512), (16, 1024, 512), (1, 1024, 512)])
def test_sums_in_single_are_stored_by_pointers_of_single(
    sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_COMPILE_FORCE_FALLBACK", "1")
    target = parse_target(resolve_target(CUDA))
    library, _ = compile_kernel(scheduled(product(*sizes)).mod, target)
    source = library.imports[0].inspect_source("cuda")
    pointers = {
        call: set(re.findall(rf"{call}_matrix_sync\(.*?\(\((\w+)\*\)buf_dyn_shmem", source))
        for call in ("load", "store")
    }
    assert pointers == {"load": {"half"}, "store": {"float"}}
