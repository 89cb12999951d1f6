"""The kernel set of a task, chosen from its records: a weighted k-median, and a dispatch tree.

The candidates are the retimed finalists and the set that the search's own times would give; the
search's times are rescaled by the median ratio of retimed to searched times. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from tuner.arrays import Floats
from tuner.candidate import Candidate, CandidateKind
from tuner.dynamic.dispatch_tree import Tree, grow, leaves, pick, renumber
from tuner.dynamic.kernel_set import KernelSet, ShapeTimes
from tuner.generations import of_newest
from tuner.record import Record
from tuner.search.dynamic.guard_cost import guard_s
from tuner.search.dynamic.kernel_table import Kernel, Kernels
from tuner.search.dynamic.small_shape_fallback import with_fallback
from tuner.search.dynamic.specialization import Copies, pays, read_copies
from tuner.search.dynamic.subset_selection import select
from tuner.task import Instance, Task

Describe = Callable[[Candidate], Kernel | None]
"""Gives the kernel of a candidate; None where the candidate is not a kernel of the task."""
_BEYOND = 3
"""The curve of losses goes on to this many kernels more than the set may have; see
`KernelSearchSettings.spare`."""


def choose_kernels(
    task: Task, records: Sequence[Record], describe: Describe, most: int
) -> KernelSet | None:
    """Choose the set of at most `most` kernels that serves a task's shapes best, and its tree.

    Where finalists were retimed, the candidates are these and the set that the search's times
    alone would give, since time may have run out before the latter's turn. A retimed time of a pair
    replaces that of the search; times of the search are rescaled by the median ratio of the two. A
    pair that was not measured counts with its prediction, plus one standard deviation where another
    kernel was measured on that shape.

    Returns:
        None where no kernel has a time.
    """
    everything = [r for r in records if r.trial.task_key == task.key and r.trial.instance]
    everything = of_newest(everything)
    copies = read_copies(everything)
    mine = [r for r in everything if r.trial.candidate.kind is not CandidateKind.SPECIALISED]
    candidates = dict.fromkeys(r.trial.candidate for r in mine)
    kernels = [kernel for c in candidates if (kernel := describe(c)) is not None]
    searched = _table(task, kernels, (r for r in mine if not r.trial.rung))
    paced = _at_one_pace(mine)
    table = _table(task, kernels, paced)
    if not table.measured:
        return None
    places = range(len(table.instances))
    known = _eligible(table, searched, mine, most)
    latencies_s, spreads = table.forecast(known, places)
    fastest_s = table.fastest_s(places)
    # Predictions for kernels that cannot be chosen do not count: the lowest of many is luck.
    best_s = np.minimum(latencies_s.min(axis=0), fastest_s)
    # Nor at face value for those that can, where any kernel was measured: they count as too low.
    careful_s = latencies_s * np.exp(np.where(np.isfinite(fastest_s), spreads, 0.0))
    layouts = [table[n].layout for n in known]
    selection = select(careful_s, table.weights, most, layouts, best_s=best_s)
    rows = list(selection.kernels)
    alike = [place for place, layout in enumerate(layouts) if layout == layouts[rows[0]]]
    more = select(careful_s[alike], table.weights, most + _BEYOND, best_s=best_s)
    costs = careful_s[rows] / best_s * (table.weights / table.weights.sum())
    dims = [name for name, _ in table.instances[0]]
    values = np.array([[v for _, v in i] for i in table.instances], dtype=np.int64)
    tree = renumber(grow(dims, values, costs), dict(enumerate(rows)))
    tree = with_fallback(tree, table.instances, careful_s, alike, most)
    used = sorted({leaf.kernel for leaf in leaves(tree)})
    tree = renumber(tree, {old: new for new, old in enumerate(used)})
    chosen = [known[row] for row in used]
    shapes = _times(table, chosen, tree, latencies_s[used], best_s)
    shapes = tuple(_serve_by_copy(s, table[chosen[s.kernel]].candidate, copies) for s in shapes)
    loss = sum(s.weight * s.latency_s / s.best_s for s in shapes) / table.weights.sum()
    error, judged = _prediction_error(_table(task, kernels, _of_searched(paced)), mine)
    return KernelSet(
        kernels=tuple(table[n].candidate for n in chosen),
        tree=tree,
        losses=more.losses,
        loss=float(loss),
        shapes=shapes,
        error=error,
        judged=judged,
    )


def _table(task: Task, kernels: Iterable[Kernel], records: Iterable[Record]) -> Kernels:
    table = Kernels(task.shapes)
    for kernel in kernels:
        table.add(kernel)
    for record in records:
        table.observe(record)
    return table


def _at_one_pace(records: Sequence[Record]) -> list[Record]:
    """Records with the times of the search rescaled to those of the finalists.

    The factor is the median of retimed over searched time, of the pairs that have both. Where only
    some pairs were retimed, times of both kinds are compared. The choice must then depend neither
    on a machine that became slower meanwhile nor on the luck that made a finalist seem fast.
    """
    searched: dict[tuple[str, Instance], float] = {}
    again: dict[tuple[str, Instance], float] = {}
    for record in records:
        pair = _pair(record)
        if record.latency_s is not None:
            times_s = again if record.trial.rung else searched
            times_s[pair] = min(record.latency_s, times_s.get(pair, np.inf))
    ratios = [seconds / searched[pair] for pair, seconds in again.items() if pair in searched]
    pace = float(np.median(ratios)) if ratios else 1.0
    return [record if record.trial.rung else _slow_down(record, pace) for record in records]


def _of_searched(records: Sequence[Record]) -> list[Record]:
    """Records of the pairs that the search had measured, re-timings included."""
    searched = {_pair(record) for record in records if not record.trial.rung}
    return [record for record in records if _pair(record) in searched]


def _pair(record: Record) -> tuple[str, Instance]:
    return record.trial.candidate.key, record.trial.instance


def _slow_down(record: Record, by: float) -> Record:
    samples_s = tuple(sample * by for sample in record.measurement.samples_s)
    return replace(record, measurement=replace(record.measurement, samples_s=samples_s))


def _eligible(table: Kernels, searched: Kernels, records: Iterable[Record], most: int) -> list[int]:
    """Kernels that may be in the set: the retimed ones, and the set by the search's times alone;
    or all measured kernels, where none was retimed."""
    again = {r.trial.candidate.key for r in records if r.trial.rung and r.latency_s is not None}
    if not again:
        return table.measured
    sound = [n for n in searched.measured if not table.failed(n)]
    latencies_s = searched.latencies_s(sound, range(len(searched.instances)))
    layouts = [searched[n].layout for n in sound]
    alone = select(latencies_s, searched.weights, most, layouts).kernels
    taken = {sound[row] for row in alone}
    return [n for n in table.measured if n in taken or table[n].candidate.key in again]


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
                guard_s=guard_s(table, chosen[kernel], place),
            )
        )
    return tuple(found)


def _serve_by_copy(shape: ShapeTimes, kernel: Candidate, copies: Copies) -> ShapeTimes:
    """The shape's times with the specialised copy of its kernel, where the copy pays."""
    if (found := pays(copies, kernel, shape.instance, shape.latency_s)) is None:
        return shape
    copy, latency_s = found
    return replace(shape, copy=copy, latency_s=latency_s, best_s=min(shape.best_s, latency_s))


def _prediction_error(table: Kernels, records: Sequence[Record]) -> tuple[float | None, int]:
    """Mean relative error of predictions, and their number, over the pairs that were retimed as
    finalists and that the search had not measured.

    Args:
        table: the latest times of all other pairs.
    """
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
