"""Programs that tuners were publicly said to fail on, tuned a few trials on the emulated device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import pytest

from spaces.design_space.default_schedule import default_candidate
from spaces.design_space.trace_space import TraceSpace
from spaces.ir.schedules import InvalidCandidate
from spaces.lowering.extract_tasks import task_of
from tests.actors.test_emulated_measurer import EMULATED, emulated_measurer
from tuner.candidate import Candidate, Draft
from tuner.record import Record, Status, Trial
from tuner.task import Task

pytestmark = [pytest.mark.tvm, pytest.mark.slow]
_DRAWN, _TRIED = 60, 4


def product(m: int, n: int, k: int, dtype: str, sums: str) -> Any:
    """A product whose factors are cast to the type of the sums."""
    from tvm import te

    a, b = te.placeholder((m, k), dtype, "a"), te.placeholder((k, n), dtype, "b")
    r = te.reduce_axis((0, k), "r")

    def element(i: Any, j: Any) -> Any:
        return te.sum(a[i, r].astype(sums) * b[r, j].astype(sums), r)

    return te.create_prim_func([a, b, te.compute((m, n), element, "c")])


def dense(m: int, n: int, k: int) -> Any:
    from tvm import te, topi

    x, w = te.placeholder((m, k), "float16", "x"), te.placeholder((n, k), "float16", "w")
    return te.create_prim_func([x, w, topi.nn.dense(x, w)])


def batched(q: int, m: int, n: int, k: int, dtype: str) -> Any:
    from tvm import te, topi

    a, b = te.placeholder((q, m, k), dtype, "a"), te.placeholder((q, n, k), dtype, "b")
    return te.create_prim_func([a, b, topi.nn.batch_matmul(a, b)])


CASES: Mapping[str, Callable[[], Any]] = {
    "#14137 one column": lambda: dense(1000, 1, 512),
    "#13204 sums that no intrinsic has": lambda: product(128, 128, 128, "float16", "float64"),
    "#13204 sums in float16": lambda: product(256, 256, 256, "float16", "float16"),
    "#13204 sums in float32": lambda: product(256, 256, 256, "float16", "float32"),
    "#18472 mma": lambda: product(512, 256, 256, "float16", "float16"),
    "#17002 scores": lambda: batched(12, 128, 128, 64, "float32"),
    "#17002 scores in float16": lambda: batched(12, 128, 128, 64, "float16"),
    "#17002 context": lambda: batched(12, 128, 64, 128, "float16"),
}
"""By the issue of apache/tvm."""
LONG = set(CASES) - {"#14137 one column"}


def candidates(task: Task) -> list[Candidate]:
    """Some of a task's space."""
    space, found = TraceSpace(task), dict[str, Candidate]()
    for number in range(_DRAWN):
        try:
            candidate = space.realize_draft(Draft(task.key, number, number)).candidate
        except InvalidCandidate:
            continue
        found[candidate.key] = candidate
        if len(found) == _TRIED:
            break
    return list(found.values())


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n in LONG else ()) for n in CASES]
)
def test_a_public_case_is_tuned_and_each_kernel_is_right(name: str) -> None:
    task = task_of(CASES[name](), EMULATED, name="case")
    tried = [default_candidate(task), *candidates(task)]
    assert len(tried) == 1 + _TRIED
    with closing(emulated_measurer([task])) as measurer:
        measurer.submit([Trial(task.key, candidate) for candidate in tried])
        records: list[Record] = []
        while len(records) < len(tried):
            found = measurer.collect(240)
            assert found, "no record came"
            records += found
    wrong = {r.measurement.error for r in records if r.measurement.status is not Status.OK}
    assert not wrong
    times = {r.trial.candidate.key: r.measurement.samples_s[0] for r in records}
    assert min(times.values()) <= times[tried[0].key]
