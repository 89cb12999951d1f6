"""What a run has had from each design space: trials, failures, and the tasks that it won."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.storage.base import RecordStore
from tuner.storage.facts import Sizes
from tuner.storage.tallies import SpaceTally, count_by_space
from tuner.task import Task
from tuner.view.run_view import SpaceView
from tuner.view.words import all_of


def view_spaces(store: RecordStore, tasks: Sequence[Task]) -> tuple[SpaceView, ...]:
    """The spaces of a run's tasks, the most tried first."""
    totals: dict[str, SpaceTally] = {}
    won: dict[str, list[str]] = {}
    tallies, sizes = count_by_space(store.tallies()), store.get(Sizes).by_task
    points: dict[str, int] = {}
    for task in tasks:
        mine = tallies.get(task.key, {})
        for space, tally in mine.items():
            totals[space] = totals.get(space, SpaceTally()).plus(tally)
            if (size := sizes.get(task.key, {}).get(space)) is not None:
                points[space] = points.get(space, 0) + size
        timed = {space: tally.best_s for space, tally in mine.items() if tally.best_s is not None}
        if timed:
            won.setdefault(min(timed, key=lambda s: (timed[s], s)), []).append(task.name)
    ordered = sorted(totals, key=lambda space: (-totals[space].trials, space))
    return tuple(
        SpaceView(
            space=space,
            points=points.get(space),
            explored=totals[space].explored,
            trials=totals[space].trials,
            failed=totals[space].failed,
            won=tuple(won.get(space, ())),
            best_s=totals[space].best_s,
        )
        for space in ordered
    )


def fruitless(store: RecordStore, tasks: Sequence[Task]) -> list[str]:
    """A line for each declared space that gave not a single time, with its first reason.

    Args:
        tasks: with the spaces that apply to them.
    """
    wanted: dict[str, str] = {}
    for task in tasks:
        if task.space is not None:
            wanted |= {task.space.space_name(part): part for part in task.space.parts}
    if not wanted:
        return []
    found = {row.space: row for row in view_spaces(store, tasks)}
    lines = []
    for space, part in wanted.items():
        row = found.get(space)
        if row is None:
            lines.append(f"{part}: none of its drafts could be scheduled, or none was reached")
        elif row.best_s is None and row.failed:
            lines.append(
                f"{part}: {all_of(row.failed, 'candidate')} failed: {_first(store, space)}"
            )
    return lines


def _first(store: RecordStore, space: str) -> str:
    """How the first failed trial of a space ended."""
    for record in store.scan():
        if record.trial.candidate.space == space and record.measurement.status.failed:
            status = record.measurement.status.replace("_", " ")
            return f"{status}, {record.measurement.error}" if record.measurement.error else status
    return ""
