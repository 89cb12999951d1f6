"""The kernels that a function is made of, chosen from what was measured. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from tuner.candidate import Candidate
from tuner.dynamic.kernels import Kernel, Kernels
from tuner.dynamic.residuals import Floats
from tuner.dynamic.selection import select
from tuner.dynamic.tree import Tree, grow, leaves, pick, renumbered
from tuner.record import Record
from tuner.task import Instance, Task

Describe = Callable[[Candidate], Kernel | None]
"""What there is to know of a candidate; None where it is no kernel of the task."""


@dataclass(frozen=True, slots=True)
class ShapeTimes:
    """One shape.

    Attributes:
        kernel: that the tree takes for it, by its place in `KernelSet.kernels`.
        latency_s: of that kernel; `best_s` of the best kernel of all.
        measured: whether the first of these was; else it is predicted.
        padding: share of the kernel's work that lies beyond the shape, which is what its guard
            costs; None where its template knows of none.
    """

    instance: Instance
    weight: float
    kernel: int
    latency_s: float
    best_s: float
    measured: bool
    padding: float | None = None


@dataclass(frozen=True, slots=True)
class KernelSet:
    """A few kernels for all shapes of a task.

    Attributes:
        kernels: by the numbers that the tree's leaves hold.
        losses: of the best set of one kernel, two, and so on: latency against each shape's best
            kernel, weighted over the shapes.
        loss: of the tree.
        error: mean absolute error of predictions for pairs that the search had not measured, as
            a share of what was then measured; None where there were too few.
        judged: how many pairs that is the error of.
    """

    kernels: tuple[Candidate, ...]
    tree: Tree
    losses: tuple[float, ...]
    loss: float
    shapes: tuple[ShapeTimes, ...]
    error: float | None
    judged: int

    @property
    def latency_s(self) -> float:
        """Weighted mean over the shapes."""
        total = sum(s.weight for s in self.shapes)
        return sum(s.weight * s.latency_s for s in self.shapes) / total


def choose_kernels(
    task: Task, records: Sequence[Record], describe: Describe, most: int
) -> KernelSet | None:
    """The set of at most `most` kernels that serves a task's shapes best, and its tree.

    Only kernels that were timed again on every measured shape are taken, where there are any.

    Returns:
        None where nothing of use was measured.
    """
    describe = cache(describe)  # asked twice for each: of all records, and of the search's
    mine = [r for r in records if r.trial.task_key == task.key and r.trial.instance]
    table = _table(task, mine, describe)
    known = _timed_again(table, mine) or table.measured
    if not known:
        return None
    places = range(len(table.instances))
    latencies_s = table.latencies_s(known, places)
    layouts = [table[n].layout for n in known]
    selection = select(latencies_s, table.weights, most, layouts)
    rows = list(selection.kernels)
    best_s = latencies_s.min(axis=0)
    costs = latencies_s[rows] / best_s * (table.weights / table.weights.sum())
    dims = [name for name, _ in table.instances[0]]
    values = np.array([[v for _, v in i] for i in table.instances], dtype=np.int64)
    tree = grow(dims, values, costs)
    used = sorted({leaf.kernel for leaf in leaves(tree)})
    tree = renumbered(tree, {old: new for new, old in enumerate(used)})
    chosen = [known[rows[place]] for place in used]
    chosen_s = latencies_s[[rows[place] for place in used]]
    shapes = _times(table, chosen, tree, chosen_s, best_s)
    loss = sum(s.weight * s.latency_s / s.best_s for s in shapes) / table.weights.sum()
    error, judged = _prediction_error(task, mine, describe)
    return KernelSet(
        kernels=tuple(table[n].candidate for n in chosen),
        tree=tree,
        losses=selection.losses,
        loss=float(loss),
        shapes=shapes,
        error=error,
        judged=judged,
    )


def _table(task: Task, records: Iterable[Record], describe: Describe) -> Kernels:
    table = Kernels(task.shapes)
    for record in records:
        kernel = describe(record.trial.candidate)
        if kernel is not None:
            table.add(kernel)
            table.observe(record)
    return table


def _timed_again(table: Kernels, records: Iterable[Record]) -> list[int]:
    """Kernels that were finalists: timed again wherever any was."""
    again: dict[str, set[Instance]] = {}
    for record in records:
        if record.trial.rung > 0 and record.latency_s is not None:
            again.setdefault(record.trial.candidate.key, set()).add(record.trial.instance)
    everywhere: set[Instance] = set().union(*again.values())
    whole = {key for key, instances in again.items() if instances == everywhere}
    return [n for n in table.measured if table[n].candidate.key in whole]


def _times(
    table: Kernels, chosen: Sequence[int], tree: Tree, latencies_s: Floats, best_s: Floats
) -> tuple[ShapeTimes, ...]:
    found = []
    for place, instance in enumerate(table.instances):
        kernel = pick(tree, dict(instance))
        padding = table[chosen[kernel]].padding
        found.append(
            ShapeTimes(
                instance=instance,
                weight=float(table.weights[place]),
                kernel=kernel,
                latency_s=float(latencies_s[kernel, place]),
                best_s=float(best_s[place]),
                measured=table.time_s(chosen[kernel], place) is not None,
                padding=padding[place] if padding else None,
            )
        )
    return tuple(found)


def _prediction_error(
    task: Task, records: Sequence[Record], describe: Describe
) -> tuple[float | None, int]:
    """How far predictions from the search alone were off where finalists were measured after."""
    searched = [r for r in records if r.trial.rung == 0]
    table = _table(task, searched, describe)
    errors = []
    last: dict[tuple[int, int], float] = {}
    for record in records:
        number = table.number(record.trial.candidate)
        place = table.place(record.trial.instance)
        if record.trial.rung == 0 or number is None or place is None or record.latency_s is None:
            continue
        if table.time_s(number, place) is None and not table.failed(number):
            last[number, place] = min(record.latency_s, last.get((number, place), np.inf))
    for (number, place), measured_s in last.items():
        predicted_s = float(table.latencies_s([number], [place])[0, 0])
        errors.append(abs(predicted_s / measured_s - 1.0))
    return (float(np.mean(errors)) if errors else None), len(errors)
