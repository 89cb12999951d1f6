"""Folds over a store's tallies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tuner.record import Status
from tuner.storage.base import Tally

ToolchainCounts = dict[str, dict[str, int]]
"""Numbers of trials by toolchain and task key."""


@dataclass(frozen=True, slots=True)
class SpaceTally:
    """What the search has had from one space of a task, or of several.

    Attributes:
        trials: those that count against the budget.
        failed: trials that gave no time, whether they count or not; those cut off are none.
        best_s: the lowest latency; None without a time.
        explored: all trials, those that were refused, or known as another candidate, too.
    """

    trials: int = 0
    failed: int = 0
    best_s: float | None = None
    explored: int = 0

    def plus(self, other: SpaceTally) -> SpaceTally:
        """Both together."""
        timed = (s for s in (self.best_s, other.best_s) if s is not None)
        trials, failed = self.trials + other.trials, self.failed + other.failed
        explored = self.explored + other.explored
        return SpaceTally(trials, failed, min(timed, default=None), explored)


def count_statuses(tallies: Iterable[Tally]) -> dict[str, dict[Status, int]]:
    """The number of trials by task key and status."""
    counts: dict[str, dict[Status, int]] = {}
    for each in tallies:
        mine = counts.setdefault(each.task_key, {})
        mine[each.status] = mine.get(each.status, 0) + each.number
    return counts


def count_by_space(tallies: Iterable[Tally]) -> dict[str, dict[str, SpaceTally]]:
    """What the search has had, by task key and name of the space."""
    counts: dict[str, dict[str, SpaceTally]] = {}
    for each in tallies:
        mine = counts.setdefault(each.task_key, {})
        spent, failed = each.status.spends_budget, each.status.failed
        more = SpaceTally(each.number * spent, each.number * failed, each.best_s, each.number)
        mine[each.space] = mine.get(each.space, SpaceTally()).plus(more)
    return counts


def count_by_toolchain(tallies: Iterable[Tally]) -> ToolchainCounts:
    """The number of timed trials by toolchain and task key, the toolchain that was used last at the
    end; trials of unknown toolchains are left out."""
    counts: ToolchainCounts = {}
    for each in sorted(tallies, key=lambda each: each.last):
        if each.timed and each.toolchain:
            mine = counts[each.toolchain] = counts.pop(each.toolchain, {})
            mine[each.task_key] = mine.get(each.task_key, 0) + each.timed
    return counts
