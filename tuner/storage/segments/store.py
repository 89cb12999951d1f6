"""A record store whose truth is a chain of segments in an object store, see
`tuner.storage.segments.format`.

Reads are answered from an index on the local disk and from the few records that are not durable
yet. This store promises less than others: records gather until there are 64 or the first is 2 s
old, so `append` returns before they are durable. `flush` waits until they are; only then are they
in the index. A record that dies with its process is lost, and its trial is run again. All other
input is durable when a method returns, except heartbeats, which wait to be written with records. An
error of the object store comes late too: the next call raises it, and so does every later one.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tuner.arrays import Features
from tuner.errors import TunerError
from tuner.record import Record
from tuner.storage.base import Kept, SessionSpan, Tally, as_vector
from tuner.storage.facts import (
    Defaults,
    Fact,
    SessionAlive,
    SessionEnded,
    Sizes,
    Tasks,
    TrackingEntries,
)
from tuner.storage.history import History
from tuner.storage.objects.base import ObjectStore
from tuner.storage.segments.format import Entry, Measured, Segment
from tuner.storage.segments.index import advance, mark, open_index, replay
from tuner.storage.segments.lease import Lease, loss_error
from tuner.storage.segments.log import Position, add, put_aside
from tuner.storage.segments.writer import SegmentWriter
from tuner.storage.sqlite_store import MemoryStore
from tuner.task import Task
from tuner.utilisation import total


class SegmentStore:
    """A `RecordStore` in an object store that several machines see. Methods may be called from any
    thread.

    Args:
        objects: where the segments are.
        index: local file with their content; made if it is not there, thrown away if it is another
            run's. Readers of the same run may use the same file.
        lease: the run's lease, which is taken, renewed and given back here.
        oldest_s: time that a record may wait for others to be written with.
        beat_s: time that a heartbeat may wait for records to be written with.
        patience_s, answer_s: see `SegmentWriter`.
        clock: seconds that never go back.

    Raises:
        TunerError: another process holds the lease or takes it (`LeaseLost`), trouble with the
            object store or the local disk, damaged segments.
    """

    def __init__(
        self,
        objects: ObjectStore,
        index: Path,
        *,
        lease: Lease | None = None,
        oldest_s: float = 2.0,
        beat_s: float = 30.0,
        patience_s: float = 60.0,
        answer_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._objects = objects
        self._lease = lease or Lease(objects)
        self._oldest_s, self._beat_s = oldest_s, beat_s
        self._pending = MemoryStore()
        """The records that are not durable yet."""
        self._closed = False
        with contextlib.ExitStack() as undo:
            self._lease.acquire()
            undo.callback(self._give_unused_lease_back)
            self._index, at = open_index(objects, index)
            undo.callback(self._index.close)
            at = self._seal(advance(objects, self._index, at))
            undo.pop_all()
        self._writer = SegmentWriter(
            objects,
            self._lease,
            at,
            self._keep,
            patience_s=patience_s,
            answer_s=answer_s,
            clock=clock,
        )
        self._lock = self._writer.lock
        self._writer.start()

    def _seal(self, at: Position) -> Position:
        """Add an empty segment, behind which no older epoch adds any: see
        `tuner.storage.segments.lease`."""
        while True:
            if at.epoch > self._lease.epoch:
                raise loss_error(self._objects, "another process")
            sealed = add(self._objects, Segment(at.number + 1, self._lease.epoch, at.checksum))
            if sealed is not None:
                mark(self._index, sealed)
                return sealed
            if not put_aside(self._objects, at.number + 1):
                at = advance(self._objects, self._index, at)  # a late segment of the last writer

    def _keep(self, entries: Sequence[Entry], at: Position) -> None:
        """Put what became durable into the index."""
        replay(entries, self._index)
        mark(self._index, at)
        self._pending = MemoryStore()
        self._pending.append_many([(m.record, m.features) for m in self._writer.waiting()])

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            self._writer.check()
            yield

    # Records.

    def append_many(self, items: Sequence[tuple[Record, Features | None]]) -> list[bool]:
        """See `RecordStore.append_many`; durable a little later, and no more than 64 at once."""
        entries = [Measured(r, None if f is None else as_vector(f)) for r, f in items]
        self._writer.make_room()
        with self._reading():
            return [self._append(entry) for entry in entries]

    def _append(self, entry: Measured) -> bool:
        if self._index.has(entry.record.trial.key):
            return False
        if not self._pending.append_many([(entry.record, entry.features)])[0]:
            return False
        self._writer.give(entry, within_s=self._oldest_s)
        return True

    def flush(self) -> None:
        """See `RecordStore.flush`."""
        self._writer.settle()

    def scan(
        self,
        task_key: str | None = None,
        *,
        candidate_key: str | None = None,
        min_rung: int = 0,
        fastest: int | None = None,
    ) -> Iterator[Record]:
        """See `RecordStore.scan`."""
        with self._reading():
            found = [
                store.scan(
                    task_key, candidate_key=candidate_key, min_rung=min_rung, fastest=fastest
                )
                for store in (self._index, self._pending)
            ]
        if fastest is None:
            return itertools.chain(*found)
        # Of equally fast ones those of the index come first, as they were appended.
        merged = heapq.merge(*found, key=lambda record: record.latency_s or math.inf)
        return itertools.islice(merged, max(0, fastest))

    def tallies(self) -> list[Tally]:
        """See `RecordStore.tallies`."""
        with self._reading():
            durable, pending = self._index.tallies(), self._pending.tallies()
        last = max((each.last for each in durable), default=0)
        return [*durable, *(replace(each, last=each.last and last + each.last) for each in pending)]

    def features(self, task_key: str) -> dict[str, Features]:
        """See `RecordStore.features`."""
        with self._reading():
            return {**self._pending.features(task_key), **self._index.features(task_key)}

    def put(self, *facts: Fact) -> None:
        """See `RecordStore.put`.

        Sizes, histories and entries are known here once they are durable, with the next segment; a
        heartbeat is durable with the next segment, or within `beat_s`.
        """
        with self._reading():
            self._refuse_unknown(facts)
            given = [self._give(fact) for fact in facts]
            if any(given):
                self._writer.settle()

    def _give(self, fact: Fact) -> bool:
        """Give a fact to the writer; return whether it has to be durable at once."""
        match fact:
            case Sizes() | History() | TrackingEntries():
                self._writer.give(fact, within_s=self._beat_s)
                return False
            case SessionAlive(session, now_s, used):
                before = self._writer.beat_of(session)
                if used is None and before is not None:
                    used = before.utilisation
                kept = None if used is None else total([used])  # a copy, which stays as it is
                self._writer.give_beat(SessionAlive(session, now_s, kept), within_s=self._beat_s)
                return False
            case SessionEnded():
                self._writer.settle()  # its last heartbeat comes before its end
        self._writer.give(fact, within_s=0.0)
        return True

    def _refuse_unknown(self, facts: Sequence[Fact]) -> None:
        """Refuse a default of a task that is neither known nor put with it."""
        defaults = [fact for fact in facts if isinstance(fact, Defaults)]
        if not defaults:
            return
        put = [task for fact in facts if isinstance(fact, Tasks) for task in fact.tasks]
        known = {task.key for task in (*self._index.tasks(), *put)}
        for fact in defaults:
            if unknown := sorted(fact.by_task.keys() - known):
                raise ValueError(f"default candidate of an unknown task: {unknown[0]}")

    def get(self, kind: type[Kept]) -> Kept:
        """See `RecordStore.get`."""
        with self._reading():
            return self._index.get(kind)

    def tasks(self) -> tuple[Task, ...]:
        """See `RecordStore.tasks`."""
        with self._reading():
            return self._index.tasks()

    def sessions(self) -> tuple[SessionSpan, ...]:
        """See `RecordStore.sessions`."""
        with self._reading():
            return tuple(map(self._with_beat, self._index.sessions()))

    def _with_beat(self, span: SessionSpan) -> SessionSpan:
        beat = self._writer.beat_of(span.number)
        if beat is None or span.ended_s is not None:
            return span
        said = span.utilisation if beat.utilisation is None else beat.utilisation
        return replace(span, heartbeat_s=beat.now_s, utilisation=said)

    def close(self) -> None:
        """Make everything durable, give the lease back and let go of the index.

        See `SegmentWriter.close` for an object store that does not answer.

        Raises:
            TunerError: not everything could be made durable, and nobody was told so yet.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._writer.close()
        finally:
            self._index.close()

    def _give_unused_lease_back(self) -> None:
        with contextlib.suppress(TunerError):  # else it runs out by itself
            self._lease.release()
