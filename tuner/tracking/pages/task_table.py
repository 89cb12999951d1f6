"""All tasks of a run as a table, as MLflow keeps tables, so that its pages show one. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.tracking.pages.metric_names import round_shown
from tuner.view.run_view import RunView

Cell = str | int | float | None


def table(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows with the same keys, as one table; lists become text."""
    return {
        "columns": [*rows[0]] if rows else [],
        "data": [list(map(_cell, r.values())) for r in rows],
    }


def task_rows(run: RunView) -> list[dict[str, Cell]]:
    """The rows of the table of all tasks: the one that takes most of the model's time first, those
    without a time last. `share` is that of the tuned model, `share_untuned` of the untuned one."""
    now, before = run.shares(), run.shares(untuned=True)
    return [
        {
            "task": task.name,
            "share": _round(now.get(task.key)),
            "share_untuned": _round(before.get(task.key)),
            "gain": _round(task.gain),
            "best_us": _round(None if task.best_s is None else task.best_s * 1e6),
            "untuned_us": _round(None if task.default_s is None else task.default_s * 1e6),
            "weight": task.weight,
            "gflops": _round(task.gflops),
            "trials": task.trials,
            "failures": task.failed,
            "key": task.key,
        }
        for task in run.by_time()
    ]


def _round(value: float | None) -> float | None:
    return None if value is None else round_shown(value)


def _cell(value: object) -> object:
    return ", ".join(value) if isinstance(value, list) else value
