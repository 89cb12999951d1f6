"""What a run has had from each design space: trials, failures, and the tasks that it won."""

from __future__ import annotations

from typing import TypedDict

from tuner.storage.base import RecordStore, SpaceTally


class SpaceStatus(TypedDict):
    """One space of `StatusReport`.

    Keys:
        space: its name, version included; `default` is that of the default schedules.
        trials: search trials of it that count against the budget.
        failed: search trials of it that gave no time.
        won: names of the tasks whose fastest trial in the search is one of it; of tasks with
            symbolic dimensions those whose fastest trial on any shape is.
        best_ms: latency of the fastest trial of it in the search, whatever the task; None without
            a time.
    """

    space: str
    trials: int
    failed: int
    won: list[str]
    best_ms: float | None


def space_rows(store: RecordStore) -> list[SpaceStatus]:
    """The spaces of a run, the most tried first."""
    totals: dict[str, SpaceTally] = {}
    won: dict[str, list[str]] = {}
    tallies = store.spaces()
    for task in store.tasks():
        mine = tallies.get(task.key, {})
        for space, tally in mine.items():
            totals[space] = totals.get(space, SpaceTally()).plus(tally)
        timed = {space: tally.best_s for space, tally in mine.items() if tally.best_s is not None}
        if timed:
            won.setdefault(min(timed, key=lambda s: (timed[s], s)), []).append(task.name)
    ordered = sorted(totals, key=lambda space: (-totals[space].trials, space))
    return [
        SpaceStatus(
            space=space,
            trials=totals[space].trials,
            failed=totals[space].failed,
            won=won.get(space, []),
            best_ms=None if (best_s := totals[space].best_s) is None else best_s * 1e3,
        )
        for space in ordered
    ]
