"""A record store in memory."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tuner.arrays import Features
from tuner.record import Record, Status, TrialKey
from tuner.storage.base import (
    SessionSpan,
    SpaceSizes,
    Tally,
    as_vector,
)
from tuner.storage.history import History, joined
from tuner.task import Task
from tuner.utilisation import SlotSeconds, total


class MemoryStore:
    """A `RecordStore` that forgets everything with its process."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._keys: set[TrialKey] = set()
        self._ranking: dict[str, list[tuple[float, int]]] = {}
        self._features: dict[str, dict[str, Features]] = {}
        self._tasks: dict[str, Task] = {}
        self._defaults: dict[str, str] = {}
        self._sizes: dict[str, dict[str, int]] = {}
        self._history: list[History] = []
        self._sessions: list[SessionSpan] = []

    def append(self, record: Record, features: Features | None = None) -> bool:
        """See `RecordStore.append`."""
        return self.append_many([(record, features)])[0]

    def append_many(self, items: Sequence[tuple[Record, Features | None]]) -> list[bool]:
        """See `RecordStore.append_many`."""
        vectors = [None if f is None else as_vector(f) for _, f in items]
        return [
            self._append(record, vector) for (record, _), vector in zip(items, vectors, strict=True)
        ]

    def _append(self, record: Record, vector: Features | None) -> bool:
        key = record.trial.key
        if key in self._keys:
            return False
        self._keys.add(key)
        if vector is not None:
            self._features.setdefault(key.task_key, {}).setdefault(key.candidate_key, vector)
        if key.rung == 0 and record.latency_s is not None:
            ranking = self._ranking.setdefault(key.task_key, [])
            bisect.insort(ranking, (record.latency_s, len(self._records)))
        self._records.append(record)
        return True

    def scan(
        self, task_key: str | None = None, *, candidate_key: str | None = None, min_rung: int = 0
    ) -> Iterator[Record]:
        """See `RecordStore.scan`."""
        return iter(
            [
                record
                for record in self._records
                if (task_key is None or record.trial.task_key == task_key)
                and (candidate_key is None or record.trial.candidate.key == candidate_key)
                and record.trial.rung >= min_rung
            ]
        )

    def best(self, task_key: str, k: int) -> list[Record]:
        """See `RecordStore.best`."""
        return [self._records[n] for _, n in self._ranking.get(task_key, [])[: max(0, k)]]

    def has(self, key: TrialKey) -> bool:
        """See `RecordStore.has`."""
        return key in self._keys

    def tallies(self) -> list[Tally]:
        """See `RecordStore.tallies`."""
        found: dict[tuple[str, str, str, Status], list[tuple[int, Record]]] = {}
        for place, record in enumerate(self._records, start=1):
            if not record.trial.rung:
                status, toolchain = record.measurement.status, record.provenance.toolchain
                alike = (record.trial.task_key, record.trial.candidate.space, toolchain, status)
                found.setdefault(alike, []).append((place, record))
        tallies = []
        for alike, rows in found.items():
            timed = [(n, r.latency_s) for n, r in rows if r.latency_s is not None]
            best_s = min((s for _, s in timed), default=None)
            tallies.append(Tally(*alike, len(rows), len(timed), best_s, max([0, *dict(timed)])))
        return tallies

    def put_sizes(self, sizes: SpaceSizes) -> None:
        """See `RecordStore.put_sizes`."""
        for task_key in sizes.keys() & self._tasks.keys():
            self._sizes.setdefault(task_key, {}).update(sizes[task_key])

    def sizes(self) -> dict[str, dict[str, int]]:
        """See `RecordStore.sizes`."""
        return {task_key: dict(mine) for task_key, mine in self._sizes.items()}

    def put_history(self, *stretches: History) -> None:
        """See `RecordStore.put_history`."""
        self._history += stretches

    def history(self) -> History:
        """See `RecordStore.history`."""
        return joined(self._history)

    def features(self, task_key: str) -> dict[str, Features]:
        """See `RecordStore.features`."""
        return dict(self._features.get(task_key, {}))

    def put_tasks(self, tasks: Sequence[Task], defaults: Mapping[str, str]) -> None:
        """See `RecordStore.put_tasks`."""
        known = self._tasks | {task.key: task for task in tasks}
        if unknown := sorted(defaults.keys() - known.keys()):
            raise ValueError(f"default candidate of an unknown task: {unknown[0]}")
        self._tasks = known
        self._defaults.update(defaults)

    def tasks(self) -> tuple[Task, ...]:
        """See `RecordStore.tasks`."""
        return tuple(self._tasks.values())

    def defaults(self) -> dict[str, str]:
        """See `RecordStore.defaults`."""
        return dict(self._defaults)

    def begin_session(self, now_s: float) -> int:
        """See `RecordStore.begin_session`."""
        number = len(self._sessions) + 1
        self._sessions.append(SessionSpan(number, now_s, now_s))
        return number

    def heartbeat(self, session: int, now_s: float, utilisation: SlotSeconds | None = None) -> None:
        """See `RecordStore.heartbeat`."""
        span = self._sessions[session - 1]
        if span.ended_s is None:
            said = span.utilisation if utilisation is None else total([utilisation])
            self._sessions[session - 1] = replace(span, heartbeat_s=now_s, utilisation=said)

    def end_session(self, session: int, now_s: float, reason: str) -> None:
        """See `RecordStore.end_session`."""
        span = self._sessions[session - 1]
        if span.ended_s is None:
            self._sessions[session - 1] = replace(
                span, heartbeat_s=now_s, ended_s=now_s, reason=reason
            )

    def sessions(self) -> tuple[SessionSpan, ...]:
        """See `RecordStore.sessions`."""
        return tuple(self._sessions)

    def flush(self) -> None:
        """See `RecordStore.flush`; there is nothing to wait for."""

    def close(self) -> None:
        """See `RecordStore.close`."""
