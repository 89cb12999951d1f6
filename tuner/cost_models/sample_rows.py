"""The sample of rows that a cost model is fitted on: fitting takes time in proportion."""

from __future__ import annotations

import numpy as np

from tuner.arrays import Rows
from tuner.cost_models.dataset import Examples


def sample_rows(examples: Examples, most: int, rng: np.random.Generator) -> Rows:
    """Numbers of at most `most` rows, in order; all rows where there are no more.

    Tasks have equal shares; rows that a task cannot fill go to the others. A third of a share are
    the task's fastest candidates, among which the search chooses, and a third its newest, which the
    search is at now; the others are drawn from the rest, so that slow ones are known as slow.
    """
    if len(examples) <= most:
        return np.arange(len(examples))
    order = np.argsort(examples.groups, kind="stable")
    _, starts = np.unique(examples.groups[order], return_index=True)
    tasks = np.split(order, starts[1:])
    kept = []
    tasks.sort(key=len)
    for number, rows in enumerate(tasks):
        share = most // (len(tasks) - number)
        taken = rows if len(rows) <= share else _of_task(examples, rows, share, rng)
        most -= len(taken)
        kept.append(taken)
    return np.sort(np.concatenate(kept))


def _of_task(examples: Examples, rows: Rows, share: int, rng: np.random.Generator) -> Rows:
    """The sample of `share` of a task's rows, which are more and in the order of their age."""
    times_s = np.where(examples.bounds[rows], np.inf, examples.latencies_s[rows])
    third = -(-share // 3)
    fastest = rows[np.argsort(times_s, kind="stable")[:third]]
    others = rows[~np.isin(rows, fastest)]
    newest = others[len(others) - min(third, share - len(fastest)) :]
    rest = others[: len(others) - len(newest)]
    drawn = rng.choice(rest, share - len(fastest) - len(newest), replace=False)
    return np.concatenate([fastest, newest, drawn])
