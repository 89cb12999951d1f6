"""Who is timed again at the end, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tuner.candidate import Candidate
from tuner.effort import Effort
from tuner.progress import TaskProgress
from tuner.record import Record, Trial
from tuner.shapes import MEASURED_SHAPES
from tuner.task import Instance, Task

CONTENDER = 1.2
"""A candidate slower than this times the best is no contender: noise does not reach so far."""


def finalists(
    progress: TaskProgress, best: Sequence[Record], default: Candidate | None, count: int
) -> list[Candidate]:
    """Candidates of one task worth timing again.

    Args:
        best: the task's fastest records, fastest first.
        default: joins the others where it is a contender, so that no winner loses to it.
        count: at most so many, the default not counted.
    """
    if not best or best[0].latency_s is None:
        return []
    limit_s = CONTENDER * best[0].latency_s
    near = [r for r in best if r.latency_s is not None and r.latency_s <= limit_s]
    chosen = [r.trial.candidate for r in near if r.trial.candidate.key != progress.default_key]
    chosen = chosen[:count]
    if default is not None and progress.default_s is not None and progress.default_s <= limit_s:
        chosen.append(default)
    return chosen


def most_retimings(tasks: Iterable[Task], effort: Effort) -> int:
    """How many trials the finalists of these tasks take, about, if none is out of contention."""
    shapes = ((task, min(max(1, len(task.shapes)), MEASURED_SHAPES)) for task in tasks)
    return sum((effort.finalists + 1) * many * effort.rounds_of(task) for task, many in shapes)


def schedule(
    tasks: Iterable[tuple[TaskProgress, Sequence[tuple[Candidate, Instance]]]],
    rounds: Callable[[Task], int],
    stored: Callable[[Trial], bool],
) -> Iterator[Trial]:
    """Re-timing trials, interleaved: every round times each finalist of each task once, and of
    a task with many shapes once on each of them.

    Drift of the machine then meets all of a task's finalists alike. Tasks with the largest share
    of the model come first, so they are served if time runs out.

    Args:
        rounds: how often each finalist of a task is timed.
        stored: whether a trial has its record already, from an earlier session.
    """

    def share(entry: tuple[TaskProgress, Sequence[tuple[Candidate, Instance]]]) -> float:
        return -entry[0].task.weight * (entry[0].so_far_s or 0.0)

    ordered = sorted(tasks, key=share)
    most = max((rounds(progress.task) for progress, _ in ordered), default=0)
    for rung in range(1, most + 1):
        for progress, chosen in ordered:
            if rung > rounds(progress.task):
                continue
            for candidate, instance in chosen:
                trial = Trial(progress.task.key, candidate, instance, rung)
                if not stored(trial):
                    yield trial
