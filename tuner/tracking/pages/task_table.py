"""All tasks of a run as a table, as MLflow keeps tables, so that its pages show one. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.session.progress import TaskRow
from tuner.task import Task
from tuner.tracking.pages.metric_names import shown

Cell = str | int | float | None


def table(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows with the same keys, as one table; lists become text."""
    return {
        "columns": [*rows[0]] if rows else [],
        "data": [list(map(_cell, r.values())) for r in rows],
    }


def shares(rows: Sequence[TaskRow], *, untuned: bool = False) -> dict[str, float]:
    """Each task's share of the time of all tasks that have one, by task key.

    Args:
        untuned: of the time with default schedules.
    """
    times = ((row, row.default_s if untuned else row.best_s) for row in rows)
    parts = {row.key: row.weight * time_s for row, time_s in times if time_s is not None}
    whole = sum(parts.values())
    return {key: part / whole for key, part in parts.items()} if whole else {}


def task_rows(rows: Sequence[TaskRow], tasks: Mapping[str, Task]) -> list[dict[str, Cell]]:
    """The rows of the table of all tasks: the one that takes most of the model's time first, those
    without a time last. `share` is that of the tuned model, `share_untuned` of the untuned one."""
    now, before = shares(rows), shares(rows, untuned=True)
    ordered = sorted(rows, key=lambda row: -now.get(row.key, -1.0))
    return [_row(row, tasks.get(row.key), now, before) for row in ordered]


def _row(
    row: TaskRow, task: Task | None, now: Mapping[str, float], before: Mapping[str, float]
) -> dict[str, Cell]:
    best_s, default_s = row.best_s, row.default_s
    flops = task.flops if task is not None else 0.0
    return {
        "task": row.name,
        "share": _rounded(now.get(row.key)),
        "share_untuned": _rounded(before.get(row.key)),
        "gain": _rounded(default_s / best_s if best_s and default_s is not None else None),
        "best_us": _rounded(None if best_s is None else best_s * 1e6),
        "untuned_us": _rounded(None if default_s is None else default_s * 1e6),
        "weight": row.weight,
        "gflops": _rounded(flops / best_s / 1e9 if best_s and flops else None),
        "trials": row.trials,
        "failures": row.failures,
        "key": row.key,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else shown(value)


def _cell(value: object) -> object:
    return ", ".join(value) if isinstance(value, list) else value
