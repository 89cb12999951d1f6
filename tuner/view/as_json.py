"""Views as plain data: the documented keys of `--json`.

Latencies of kernels are milliseconds (`_ms`), other times seconds (`_s`); an unknown value is None.
No value is NaN or infinite.
"""

from __future__ import annotations

from typing import Any

from tuner.precision import Precision
from tuner.record import Status
from tuner.view.outcome import find_stale, look_back, rank_left, rank_won, still_falls
from tuner.view.progress import Snapshot
from tuner.view.run_view import RunView, SpaceView
from tuner.view.task_view import TaskView


def to_ms(seconds: float | None) -> float | None:
    """Seconds as milliseconds; None where unknown."""
    return None if seconds is None else seconds * 1e3


def status_json(run: RunView, precision: Precision | None = None) -> dict[str, Any]:
    """The keys of `tuner status --json`.

    Args:
        precision: of the run; None where products have the model's own types.
    """
    return {
        "precision": precision_json(precision),
        "trials": run.trials,
        "ok": run.statuses.get(Status.OK, 0),
        "censored": run.statuses.get(Status.CENSORED, 0),
        "failures": run.failures,
        "elapsed_s": run.elapsed_s,
        "trials_per_s": run.trials_per_s,
        "settled": run.settled,
        "utilisation": run.utilisation,
        "tasks": [
            {
                "name": task.name,
                "key": task.key,
                "weight": task.weight,
                "trials": task.trials,
                "ok": task.statuses.get(Status.OK, 0),
                "censored": task.statuses.get(Status.CENSORED, 0),
                "failures": task.failures,
                "default_ms": to_ms(task.default_s),
                "best_ms": to_ms(task.best_s),
                "gflops": task.gflops,
            }
            for task in run.tasks
        ],
        "spaces": [space_json(space) for space in run.spaces],
        "toolchains": [
            {"toolchain": used.toolchain, "trials": used.trials, "won": list(used.won)}
            for used in run.toolchains
        ],
    }


def precision_json(precision: Precision | None) -> dict[str, Any] | None:
    """A precision and its error, without the ranges of its rows."""
    if precision is None:
        return None
    return {name: value for name, value in precision.to_json().items() if name != "ranges"}


def best_json(task: TaskView) -> dict[str, Any]:
    """The keys of a task in `tuner best --json`, without its trace and kernels."""
    return {
        "name": task.name,
        "weight": task.weight,
        "trials": task.trials,
        "default_ms": to_ms(task.default_s),
        "latency_ms": to_ms(task.best_s),
        "gflops": task.gflops,
        "candidate": task.candidate or None,
        "space": task.space or None,
        "toolchain": (task.candidate and task.toolchain) or None,
    }


def snapshot_json(snapshot: Snapshot) -> dict[str, Any]:
    """The keys of `tuner tune --json` that tell how its session went."""
    return {
        "trials": snapshot.trials,
        "elapsed_s": snapshot.elapsed_s,
        "trials_per_s": snapshot.trials_per_s,
        "gain": snapshot.gain,
        "modelled": snapshot.modelled,
        "next_gain": snapshot.next_gain,
        "statuses": snapshot.statuses,
        "tasks": [
            {
                "name": task.name,
                "weight": task.weight,
                "trials": task.trials,
                "default_ms": to_ms(task.default_s),
                "best_ms": to_ms(task.best_s),
                "failures": task.failed,
            }
            for task in snapshot.tasks
        ],
    }


def outcome_json(run: RunView) -> dict[str, Any]:
    """The keys of `closing` in `tuner tune --json`."""
    return {
        "won": [
            {
                "task": task.name,
                "share": share,
                "before_ms": to_ms(task.default_s),
                "after_ms": to_ms(task.best_s),
            }
            for task, share in rank_won(run)
        ],
        "left": [_left_json(task, share) for task, share in rank_left(run)],
        "untimed": list(run.uncompared),
        "fruitless": [
            {"space": space.space, "trials": space.failed}
            for space in run.spaces
            if space.fruitless
        ],
        "toolchains": [used.toolchain for used in run.toolchains],
        "stale": list(find_stale(run)),
        "falling": still_falls(run),
        "before_ms": (run.untuned_s or 0.0) * 1e3,
        "after_ms": (run.tuned_s or 0.0) * 1e3,
    }


def _left_json(task: TaskView, share: float) -> dict[str, Any]:
    lately, saved = look_back(task)
    return {
        "task": task.name,
        "share": share,
        "trials": len(task.history),
        "lately": lately,
        "saved": saved,
        "latency_ms": to_ms(task.best_s),
    }


def space_json(space: SpaceView) -> dict[str, Any]:
    """The keys of a space in `tuner status --json`."""
    return {
        "space": space.space,
        "points": space.points,
        "explored": space.explored,
        "trials": space.trials,
        "failed": space.failed,
        "won": list(space.won),
        "best_ms": to_ms(space.best_s),
    }
