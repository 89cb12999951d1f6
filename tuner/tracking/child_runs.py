"""Which tasks have a run of their own in MLflow, below the model's.

All of a few tasks. Of many, those that take most of the model's time, as the default schedules say
once every task has a time: a page with hundreds of runs shows nothing. What is known of the others
is in the table of all tasks.

The choice only grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from tuner.view.progress import TaskProgress

MOST_CHILDREN = 20
TRIED = 8
"""Trials without any time, failed builds among them, after which a choice no longer waits for a
task: each task has as many before some get more."""
_PATIENCE = 40
"""Records, on the average of all tasks, after which it waits for none: one that was given up may
have no record at all."""


def all_tried(progress: Iterable[TaskProgress]) -> bool:
    """Whether the choice can be made: every task has a time, or had its first trials, or most had
    so many that those that had none will have none."""
    tasks = list(progress)
    tried = [sum(p.statuses.values()) for p in tasks]
    waited = sum(tried) >= _PATIENCE * len(tasks)
    return waited or all(
        p.best_s is not None or n >= TRIED for p, n in zip(tasks, tried, strict=True)
    )


def heaviest(
    progress: Mapping[str, TaskProgress], had: AbstractSet[str], most: int = MOST_CHILDREN
) -> frozenset[str]:
    """The tasks to have a run: those that have one, and others with a time up to `most` in all,
    first those with the largest share of the model's time."""
    share = {
        key: p.task.weight * (p.default_s or p.best_s)
        for key, p in progress.items()
        if key not in had and p.best_s is not None
    }
    free = max(0, most - len(had))
    return frozenset(had) | frozenset(sorted(share, key=lambda k: -share[k])[:free])
