"""What went wrong in a run, by kind, with the reasons that were given most often."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.record import Record, Status

_REASONS = 3
_LENGTH = 240


@dataclass(frozen=True, slots=True)
class Reason:
    """A first line of errors.

    Attributes:
        line: cut where it is long.
        count: of trials that ended with it.
        tasks: names of the tasks that these were of, the most frequent first.
    """

    line: str
    count: int
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FailureKind:
    """All trials of the search that ended in one way.

    Attributes:
        reasons: the most frequent; there may be more.
    """

    status: Status
    count: int
    reasons: tuple[Reason, ...]


class FailureFold:
    """Takes in the records of a run, and then tells what went wrong.

    Args:
        names: of tasks, by their keys.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._found: dict[Status, dict[str, Counter[str]]] = defaultdict(
            lambda: defaultdict(Counter)
        )

    def take(self, record: Record) -> None:
        """Take in the next record."""
        status = record.measurement.status
        if status.failed and record.trial.rung == 0:
            line = (record.measurement.error.strip().splitlines() or ["no reason given"])[0]
            task = self._names.get(record.trial.task_key, record.trial.task_key)
            self._found[status][line[:_LENGTH]][task] += 1

    def kinds(self) -> tuple[FailureKind, ...]:
        """The kinds of failures, the most frequent first."""
        kinds = (_kind(status, lines) for status, lines in self._found.items())
        return tuple(sorted(kinds, key=lambda kind: (-kind.count, kind.status)))


def _kind(status: Status, lines: Mapping[str, Counter[str]]) -> FailureKind:
    reasons = [
        Reason(line, tasks.total(), tuple(name for name, _ in tasks.most_common()))
        for line, tasks in lines.items()
    ]
    reasons.sort(key=lambda reason: (-reason.count, reason.line))
    return FailureKind(status, sum(r.count for r in reasons), tuple(reasons[:_REASONS]))
