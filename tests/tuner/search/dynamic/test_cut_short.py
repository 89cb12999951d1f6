"""Finalists that were not all timed again: the set is what it would be, and says how good it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.tuner.search.dynamic.kernel_world import (
    SIZES,
    answered,
    latency_s,
    measured,
    search_on,
    setting_of,
    world_kernel,
    world_task,
)
from tuner.dynamic.kernel_set import KernelSet
from tuner.record import Measurement, Record, Status, Trial
from tuner.search.dynamic.kernel_search import KernelSearch
from tuner.search.dynamic.kernel_selection import choose_kernels

TASK = world_task()
MOST = 4


def slower(record: Record, by: float) -> Record:
    samples_s = tuple(sample * by for sample in record.measurement.samples_s)
    return replace(record, measurement=replace(record.measurement, samples_s=samples_s))


@cache
def history(seed: int, pace: float) -> tuple[list[Record], list[Record]]:
    """What a search of 60 pairs saw, each off by some percent, and what its finalists took, one
    shape after the other, on a machine that may have changed its pace."""
    rng = np.random.default_rng(seed)
    seen = [
        slower(record, float(np.exp(0.03 * rng.standard_normal())))
        for record in search_on(KernelSearch(TASK, seed, MOST), TASK, 60)
    ]
    search = KernelSearch(TASK, seed, MOST)
    search.observe(seen)
    search.absorb(answered(draft, TASK) for draft in search.drafts(1000))
    trials = [Trial(TASK.key, c, instance, rung=1) for c, instance in search.finalists()]
    return seen, [slower(measured(trial), pace) for trial in trials]


def chosen(records: Sequence[Record]) -> KernelSet:
    found = choose_kernels(TASK, records, world_kernel, MOST)
    assert found is not None
    return found


def true_loss(found: KernelSet, records: Sequence[Record]) -> float:
    """Against the best of all kernels that were measured."""
    known = {setting_of(r.trial.candidate) for r in records if r.latency_s is not None}
    ratios = [
        latency_s(setting_of(found.kernels[shape.kernel]), size)
        / min(latency_s(setting, size) for setting in known)
        for shape, size in zip(found.shapes, SIZES, strict=True)
    ]
    return float(np.mean(ratios))


@pytest.mark.each_value
@pytest.mark.parametrize("pace", [0.9, 1.0, 1.2])
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("share", [0.05, 0.15, 0.5, 0.8, 1.0])
def test_however_early_time_runs_out_the_set_is_no_worse_than_the_searchs_and_says_so(
    seed: int, pace: float, share: float
) -> None:
    seen, again = history(seed, pace)
    cut = [*seen, *again[: round(share * len(again))]]
    alone, found = chosen(seen), chosen(cut)
    assert true_loss(found, cut) <= true_loss(alone, seen) + 0.01
    assert found.loss == pytest.approx(true_loss(found, cut), abs=0.04)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_finalist_that_lost_a_record_is_still_one(seed: int) -> None:
    seen, again = history(seed, 1.0)
    whole = chosen([*seen, *again])
    for place in range(0, len(again), 7):
        trial = again[place].trial
        lost = Record(trial, Measurement(Status.LOST, error="its node is gone"))
        left = [*seen, *again[:place], lost, *again[place + 1 :]]
        found = chosen(left)
        assert true_loss(found, left) <= true_loss(whole, left) + 0.01
        assert found.loss == pytest.approx(true_loss(found, left), abs=0.04)
