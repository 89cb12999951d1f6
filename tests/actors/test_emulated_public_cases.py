"""Programs that tuners were publicly said to fail on, tuned a few trials on the emulated device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from math import prod
from typing import Any

import pytest

from spaces.design_space.default_schedule import default_candidate
from spaces.design_space.schedule_rules import RULES, rule_names, rule_set, tune_context
from spaces.design_space.trace_space import TraceSpace
from spaces.ir.schedules import InvalidCandidate, task_module
from spaces.lowering.extract_tasks import task_of
from tests.actors.test_emulated_measurer import EMULATED, emulated_measurer
from tuner.candidate import Candidate, Draft
from tuner.record import Record, Status, Trial
from tuner.task import Task

pytestmark = [pytest.mark.tvm, pytest.mark.slow]
_DRAWN, _TRIED = 60, 4
_MMA_DRAWN, _MMA_TERMS, _PERMUTED = 60, 8, 32
"""Draws, terms that an instruction sums, and those of a step whose tiles TVM can lay out."""


def product(m: int, n: int, k: int, dtype: str, sums: str) -> Any:
    """A product whose factors are cast to the type of the sums."""
    from tvm import te

    a, b = te.placeholder((m, k), dtype, "a"), te.placeholder((k, n), dtype, "b")
    r = te.reduce_axis((0, k), "r")

    def element(i: Any, j: Any) -> Any:
        return te.sum(a[i, r].astype(sums) * b[r, j].astype(sums), r)

    return te.create_prim_func([a, b, te.compute((m, n), element, "c")])


def space_of_mma(task: Task) -> TraceSpace:
    """The space of MetaSchedule's rule for mma. Its defaults have it, and it never comes to bear:
    the rule for wmma, before it, takes each block that it would take."""
    from tvm.s_tir import meta_schedule as ms

    kind = rule_names(task_module(task.module), task.target).rules
    rules = list(ms.ScheduleRule.create(kind))
    del rules[next(n for n, rule in enumerate(rules) if "TensorCore" in type(rule).__name__)]
    generator = ms.space_generator.PostOrderApply(
        sch_rules=rules, postprocs=kind, mutator_probs=kind
    )
    context = tune_context(task_module(task.module), task.target, generator)
    return TraceSpace(task, rule_set(f"{RULES}:{kind}", context))


def terms_of_a_step(trace: Any) -> int:
    """How many terms of each sum a block takes in at once."""
    (tile,) = (i for i in trace.insts if str(i.kind.name) == "SamplePerfectTile")
    _, *inner = trace.get_decision(tile)
    return prod(map(int, inner)) * _MMA_TERMS


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


def measured(task: Task, tried: Sequence[Candidate]) -> list[Record]:
    """The record of each candidate."""
    with closing(emulated_measurer([task])) as measurer:
        measurer.submit([Trial(task.key, candidate) for candidate in tried])
        records: list[Record] = []
        while len(records) < len(tried):
            found = measurer.collect(240)
            assert found, "no record came"
            records += found
    return records


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n in LONG else ()) for n in CASES]
)
def test_a_public_case_is_tuned_and_each_kernel_is_right(name: str) -> None:
    task = task_of(CASES[name](), EMULATED, name="case")
    tried = [default_candidate(task), *candidates(task)]
    assert len(tried) == 1 + _TRIED
    records = measured(task, tried)
    wrong = {r.measurement.error for r in records if r.measurement.status is not Status.OK}
    assert not wrong
    times = {r.trial.candidate.key: r.measurement.samples_s[0] for r in records}
    assert min(times.values()) <= times[tried[0].key]


@pytest.mark.long
@pytest.mark.parametrize("sums", ["float16", "float32"])
def test_schedules_of_the_rule_for_mma_are_right_or_refused_for_their_layout(sums: str) -> None:
    """apache/tvm#18472: the rule draws steps of any size, and TVM lays out those of 32 terms."""
    task = task_of(product(512, 256, 256, "float16", sums), EMULATED, name="case")
    space, fits, others = space_of_mma(task), list[Candidate](), list[Candidate]()
    for number in range(_MMA_DRAWN):
        try:
            point = space.realize_draft(Draft(task.key, number, number))
        except InvalidCandidate:
            continue
        whole = terms_of_a_step(point.schedule.trace) % _PERMUTED == 0
        (fits if whole else others).append(point.candidate)
    assert len(fits) >= _TRIED
    assert others
    assert all("mma_sync_m16n8k8" in candidate.payload for candidate in fits)
    for record in measured(task, fits[:_TRIED]):
        assert record.measurement.status is Status.OK, record.measurement.error
    (refused,) = measured(task, others[:1])
    assert refused.measurement.status is Status.BUILD_FAILED
    assert "Permuted" in refused.measurement.error
