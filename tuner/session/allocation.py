"""Whose turn it is: the tasks of a session, in the order in which they are served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from tuner.candidate import Candidate
from tuner.record import Trial, TrialKey
from tuner.session.allocator import Allocator, AskedTurns, Turns, priorities, view
from tuner.session.given_trials import BEFORE_DEFAULT, BEFORE_LIBRARIES, make_given_trial
from tuner.session.state import SessionState
from tuner.task import Task
from tuner.view.task_view import TaskView

_FIRST_TRIALS = 4


class Allocation:
    """Asks the allocator, with the tasks as they are now.

    Args:
        defaults: the default candidate of each task; each has a turn.
        libraries: candidates of some tasks that call libraries; each has a turn before the default.
        in_flight: keys of the trials that are measured now; changes as they come and go.
        allocator: a user's own; None is `tuner.session.allocator.priorities`.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        defaults: Mapping[str, Candidate],
        libraries: Mapping[str, Sequence[Candidate]],
        known: SessionState,
        in_flight: Collection[TrialKey],
        *,
        gain_floor: float,
        allocator: Allocator | None = None,
    ) -> None:
        self._known, self._in_flight = known, in_flight
        self._gain_floor, self._allocator = gain_floor, allocator
        self._given = {
            task.key: [
                trial
                for candidate in (*libraries.get(task.key, ()), defaults[task.key])
                if not known.has(trial := make_given_trial(task, candidate))
            ]
            for task in tasks
        }

    def turns(self) -> Turns | AskedTurns:
        """The tasks, to be given trials one by one."""
        if self._allocator is not None:
            return AskedTurns(self._allocator, self._views())
        return Turns(self._views(), first_trials=_FIRST_TRIALS, gain_floor=self._gain_floor)

    def order(self) -> Sequence[str]:
        """Keys of the tasks, the one to serve next first."""
        if self._allocator is None:
            floor = self._gain_floor
            return priorities(self._views(), first_trials=_FIRST_TRIALS, gain_floor=floor)
        order = self._allocator.order(list(self._views()))
        return [key for key in order if key in self._known.progress]

    def given(self, task_key: str) -> Trial | None:
        """The trial of a task's default schedule, or of a library, where it has its turn; each only
        once."""
        return self._given[task_key].pop(0) if self._given_is_due(task_key) else None

    def is_open(self, task_key: str) -> bool:
        """Whether more trials of a task may come."""
        return self._known.is_open(task_key) or self._given_is_due(task_key)

    def _given_is_due(self, task_key: str) -> bool:
        given = self._given[task_key]
        if not given or task_key in self._known.left_out:
            return False
        begun = sum(self._known.progress[task_key].statuses.values())
        begun += sum(key.task_key == task_key for key in self._in_flight)
        due = BEFORE_LIBRARIES if len(given) > 1 else BEFORE_DEFAULT  # the default is the last
        return begun >= due or not self._known.is_open(task_key)

    def _views(self) -> Iterator[TaskView]:
        flying = Counter(key.task_key for key in self._in_flight)
        for key, p in self._known.progress.items():
            yield view(p, in_flight=flying[key], is_open=self.is_open(key))
