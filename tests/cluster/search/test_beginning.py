"""What a run says while it cannot measure yet, and when its time begins."""

from __future__ import annotations

import pytest

from cluster.scaling.pool_policy import PoolCounts
from cluster.search.beginning import Beginning

THERE, MISSING = PoolCounts(1, 1, 0, 0), PoolCounts(0, 1, 0, 0)


class Run:
    """A run whose workers come and whose clock goes as a test says."""

    def __init__(self, *beside: str) -> None:
        self.now_s = 0.0
        self.asked = 0
        self.beside = [*beside]
        self.counts = dict.fromkeys(("builder", "runner", "space"), MISSING)
        self.beginning = Beginning(lambda: self.counts, self._beside, lambda: self.now_s)

    def _beside(self) -> list[str]:
        self.asked += 1
        return self.beside

    def waits(self, now_s: float) -> str:
        self.now_s = now_s
        return self.beginning.waits()


def test_a_run_that_has_a_worker_of_each_kind_begins() -> None:
    run = Run("runs/other")
    assert run.waits(3.0) == "workers start"
    run.counts = dict.fromkeys(run.counts, THERE)
    assert run.waits(4.0) == ""
    assert not run.asked


def test_one_whose_device_others_hold_says_who() -> None:
    run = Run("runs/a", "runs/b")
    assert run.waits(14.0) == "workers start", "a runner takes some seconds"
    said = run.waits(15.0)
    assert said == "waits for a device, taken by runs/a and runs/b; its time has not begun"
    assert run.waits(17.0) == said
    assert run.asked == 1, "others are not asked in each turn"
    run.beside = []
    assert run.waits(20.0) == "workers start", "they have ended"


@pytest.mark.parametrize("kind", ["builder", "space"])
def test_workers_of_other_kinds_are_not_what_others_hold(kind: str) -> None:
    run = Run("runs/a")
    run.counts = {**dict.fromkeys(run.counts, THERE), kind: MISSING}
    assert run.waits(100.0) == "workers start"
