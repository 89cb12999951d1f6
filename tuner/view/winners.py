"""The winning records of a run: the best of each task, and of each of its shapes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from tuner.candidate import Candidate
from tuner.dynamic.kernel_set import KernelSet
from tuner.generations import first_rung, of_newest
from tuner.record import Record, Status, record_line
from tuner.storage.base import RecordStore
from tuner.storage.facts import Defaults, Sizes
from tuner.task import Instance

NO_SETS: Mapping[str, KernelSet] = MappingProxyType({})
"""No kernel sets, for any task."""
_INNOCENT = frozenset({Status.OK, Status.LOST})
"""The ends of a re-timing that do not speak against its candidate."""


def winning_records(store: RecordStore, sets: Mapping[str, KernelSet] = NO_SETS) -> list[Record]:
    """The winner of each task, see `choose_best`; of a task with symbolic dimensions, for each
    shape the fastest record, and for each kernel of its set the one that counts. Tasks come in the
    order of the model; a task without results is left out.

    Args:
        sets: kernel sets of tasks with symbolic dimensions, by task key.
    """
    found: list[Record] = []
    for task in store.tasks():
        if task.shapes:
            kernels = sets[task.key].kernels if task.key in sets else ()
            found += _best_of_shapes(store, task.key, kernels)
        elif (winner := choose_best(store, task.key)) is not None:
            found.append(winner)
    return found


def winning_lines(store: RecordStore, sets: Mapping[str, KernelSet] = NO_SETS) -> bytes:
    """`winning_records` as lines of JSON, which `tuner.record.record_from_json` reads."""
    return "".join(record_line(record) + "\n" for record in winning_records(store, sets)).encode()


@dataclass(frozen=True, slots=True)
class Choice:
    """The winner of a task.

    Attributes:
        record: the last valid one of the winning candidate.
        won: its times.
        default: those of the default schedule; none where it has none.
    """

    record: Record
    won: Timings
    default: Timings


def choose_best(
    store: RecordStore, task_key: str, *, schedules_only: bool = False
) -> Record | None:
    """The last valid record of a task's winning candidate, see `choose`; None without results."""
    choice = choose(store, task_key, schedules_only=schedules_only)
    return choice.record if choice is not None else None


def choose(store: RecordStore, task_key: str, *, schedules_only: bool = False) -> Choice | None:
    """The winning candidate of a task, and the times that decided; None without results.

    Re-timings decide where there are any: the lowest median over all re-timings of a candidate
    wins, the default schedule included, among those that were timed again more than half as often
    as any other: those that fell out sooner may have been lucky. Of several generations, only the
    newest counts. A candidate found since then wins without a re-timing if the search timed it
    faster than all that were timed again. Without any re-timings, the fastest of the search wins.

    The default wins over any candidate that is not faster: re-timings are compared where both have
    them, times of the search otherwise. A candidate that ever failed when it was timed again, by a
    wrong output or a crash, never wins; nor does a library's function once another text of the
    library is named (see `tuner.session.given_trials.note_libraries`).

    Args:
        schedules_only: no function of a library may win, and no program that is no schedule.
    """
    first = first_rung(store.scan(task_key, min_rung=1))
    timed_again = {r.trial.candidate.key: r for r in store.scan(task_key, min_rung=first)}
    old = _find_superseded(store, task_key, timed_again.values(), schedules_only)
    keys = [key for key in timed_again if key not in old]
    # A candidate whose re-timings were all lost with their workers counts as not timed again.
    retimed = {
        key: timings
        for key in keys
        if (timings := Timings.of(store, task_key, key, first)).retimed or timings.spoiled
    }
    sound = [t for t in retimed.values() if not t.spoiled]
    most = max((len(t.retimed) for t in sound), default=0)
    last = [t for t in sound if 2 * len(t.retimed) > most]
    winner = min(last, key=lambda t: t.retimed_s or math.inf, default=None)
    to_beat_s = min((t.search_s for t in sound if t.search_s is not None), default=math.inf)
    # A candidate that failed with an older toolchain must be timed again before it can win.
    failed = {
        r.trial.candidate.key
        for r in store.scan(task_key, min_rung=1)
        if r.measurement.status not in _INNOCENT
    }
    out = {*retimed, *failed, *old}
    # Any candidate that is not out shows among one record more than are out.
    for record in store.scan(task_key, fastest=len(out) + 1):
        if record.trial.candidate.key not in out:
            if record.latency_s is not None and record.latency_s < to_beat_s:
                winner = Timings.of(store, task_key, record.trial.candidate.key, first)
            break
    default = Timings.of(store, task_key, store.get(Defaults).by_task.get(task_key), first)
    if winner is None or not winner.beats(default):
        winner = default if default.last is not None else winner
    if winner is None or winner.last is None:
        return None
    return Choice(winner.last, winner, default)


def _find_superseded(
    store: RecordStore, task_key: str, timed_again: Collection[Record], schedules_only: bool
) -> set[str]:
    """Keys of candidates that call a library whose text is another by now, so that under its name
    another function is called; all that are no schedule with `schedules_only`."""
    fastest = list(store.scan(task_key, fastest=len(timed_again) + 1))
    if all(record.trial.candidate.is_schedule for record in (*timed_again, *fastest)):
        return set()
    sizes = store.get(Sizes).by_task.get(task_key, {})
    return {
        candidate.key
        for record in store.scan(task_key)
        if not (candidate := record.trial.candidate).is_schedule
        and (schedules_only or sizes.get(candidate.space) == 0)
    }


@dataclass(slots=True)
class Timings:
    """All valid times of one candidate of a task.

    Attributes:
        search: its first valid record at rung 0.
        retimed: its valid records at higher rungs.
        spoiled: whether a re-timing failed by its own fault.
    """

    search: Record | None = None
    retimed: list[Record] = field(default_factory=list)
    spoiled: bool = False

    @classmethod
    def of(
        cls, store: RecordStore, task_key: str, candidate_key: str | None, first: int = 1
    ) -> Timings:
        """The valid times in a store, re-timings from rung `first` on."""
        timings = cls()
        if candidate_key is None:
            return timings
        for record in store.scan(task_key, candidate_key=candidate_key):
            if 0 < record.trial.rung < first:
                continue
            if record.trial.rung > 0 and record.measurement.status not in _INNOCENT:
                timings.spoiled = True
            if record.latency_s is None:
                continue
            if record.trial.rung > 0:
                timings.retimed.append(record)
            elif timings.search is None:
                timings.search = record
        return timings

    @property
    def search_s(self) -> float | None:
        return self.search.latency_s if self.search else None

    @property
    def again_s(self) -> tuple[float, ...]:
        """The times of its re-timings."""
        return tuple(r.latency_s for r in self.retimed if r.latency_s is not None)

    @property
    def retimed_s(self) -> float | None:
        """Their median."""
        return statistics.median(self.again_s) if self.retimed else None

    @property
    def last(self) -> Record | None:
        return max(self.retimed, key=lambda r: r.trial.rung, default=self.search)

    @property
    def last_s(self) -> float | None:
        """The time of its last re-timing, else of the search."""
        return self.last.latency_s if self.last else None

    def beats(self, other: Timings) -> bool:
        """Whether it is faster than `other`; also where the two cannot be compared."""
        mine, theirs = self.retimed_s, other.retimed_s
        if mine is None or theirs is None:
            mine, theirs = self.search_s, other.search_s
        return mine is None or theirs is None or mine < theirs


def _best_of_shapes(
    store: RecordStore, task_key: str, kernels: Sequence[Candidate]
) -> list[Record]:
    fastest: dict[Instance, Record] = {}
    counting: dict[tuple[Instance, Candidate], Record] = {}
    for record in of_newest(list(store.scan(task_key))):
        if record.latency_s is None:
            continue
        instance, candidate = record.trial.instance, record.trial.candidate
        fastest[instance] = min(fastest.get(instance, record), record, key=_seconds)
        if candidate in kernels:
            pair = (instance, candidate)
            counting[pair] = min(counting.get(pair, record), record, key=_order_retimed_first)
    found: list[Record] = []
    for instance in sorted(fastest):
        mine = [counting[pair] for kernel in kernels if (pair := (instance, kernel)) in counting]
        found += dict.fromkeys((fastest[instance], *mine))
    return found


def _seconds(record: Record) -> float:
    return record.latency_s or math.inf


def _order_retimed_first(record: Record) -> tuple[bool, float]:
    """Sort key: re-timings before times of the search, then the least time."""
    return record.trial.rung == 0, _seconds(record)
