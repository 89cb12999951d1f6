"""The one thread that adds segments: entries go in, and come out when they are durable.

A segment is added as soon as 64 records wait, the first waiting entry is due, or somebody waits for
it. The same thread renews the lease and, as the last thing it does, gives it back: so nothing is
ever written with a lease that was given back, however long an object store stalls. An object store
that fails is tried again for a while; then the error is kept, and every later call raises it.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from tuner.errors import TunerError
from tuner.storage.facts import SessionAlive
from tuner.storage.objects.base import ObjectStore
from tuner.storage.segments.format import MOST_RECORDS, Entry, Measured, Segment
from tuner.storage.segments.lease import Lease, LeaseLost, loss_error
from tuner.storage.segments.log import Position, add

_T = TypeVar("_T")

_BACKLOG = 16 * MOST_RECORDS
"""Entries that may wait while the object store does not answer."""


class SegmentWriter:
    """Adds entries to the chain of segments, in the order they were given.

    Args:
        objects: where the chain is.
        lease: a lease that is held; from `start` on this object owns it, and gives it back.
        at: the end of the chain, sealed under this lease.
        kept: is called on the thread, under the lock, with the entries that became durable and the
            new end of the chain; an error that it raises ends the thread.
        patience_s: time for which an object store that fails is tried again.
        answer_s: time beyond that before a wait for the thread is given up.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        objects: ObjectStore,
        lease: Lease,
        at: Position,
        kept: Callable[[Sequence[Entry], Position], None],
        *,
        patience_s: float,
        answer_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._objects, self._lease, self._at, self._kept = objects, lease, at, kept
        self._epoch = lease.epoch
        self._patience_s, self._clock = patience_s, clock
        self._wait_s = patience_s + answer_s
        self._queue: deque[tuple[Entry, float]] = deque()
        """The entries that are not durable yet, each with the time by which it must be sent."""
        self._beats: dict[int, tuple[SessionAlive, float]] = {}
        self._given = self._durable = self._urgent = 0
        """Numbers of entries given so far, of durable ones, and of those that are waited for."""
        self._error: TunerError | None = None
        self._told = self._closing = self._given_up = False
        self._thread = threading.Thread(target=self._work, name="segments", daemon=True)
        self.lock = threading.Condition(threading.RLock())
        """Held while the queue, or the index that `kept` writes to, changes."""

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def give(self, entry: Entry, *, within_s: float) -> None:
        """Queue an entry, to be sent within `within_s` seconds."""
        with self.lock:
            self._queue.append((entry, self._clock() + within_s))
            self._given += 1
            self.lock.notify_all()

    def give_beat(self, beat: SessionAlive, *, within_s: float) -> None:
        """Queue a heartbeat, in place of the session's last one if that still waits."""
        with self.lock:
            _, due_s = self._beats.get(beat.session, (None, self._clock() + within_s))
            self._beats[beat.session] = (beat, due_s)
            self.lock.notify_all()

    def beat_of(self, session: int) -> SessionAlive | None:
        """The last heartbeat of a session, if it still waits."""
        with self.lock:
            if session in self._beats:
                return self._beats[session][0]
            queued = (entry for entry, _ in reversed(self._queue))
            return next(
                (e for e in queued if isinstance(e, SessionAlive) and e.session == session), None
            )

    def waiting(self) -> list[Measured]:
        """The records that are not durable yet."""
        with self.lock:
            return [entry for entry, _ in self._queue if isinstance(entry, Measured)]

    def settle(self) -> None:
        """Wait until all entries given so far are durable.

        Raises:
            TunerError: they cannot be made durable.
        """
        with self.lock:
            self._take_beats()
            until = self._urgent = self._given
            self.lock.notify_all()
            self._wait(lambda: self._durable >= until)

    def make_room(self) -> None:
        """Wait while too many entries wait already.

        Raises:
            TunerError: they cannot be made durable.
        """
        with self.lock:
            self._wait(lambda: len(self._queue) < _BACKLOG)

    def check(self) -> None:
        """Raise the error that ended the thread, if there is one."""
        with self.lock:
            if self._error is not None:
                self._told = True
                raise self._error

    def close(self) -> None:
        """Make everything durable, end the thread and give the lease back.

        A thread that the object store keeps waiting for too long is left behind: it may finish the
        change that it is at, and makes no other. The lease then stays taken until it runs out by
        itself, or the thread comes back and returns it.

        Raises:
            TunerError: not everything could be made durable, and nobody was told so yet.
        """
        told, failed = self._told, None
        try:
            self.settle()
        except TunerError as error:
            failed = error
        with self.lock:
            self._closing = True
            self._given_up = failed is not None
            self.lock.notify_all()
        self._thread.join(self._wait_s)
        with self.lock:
            self._given_up = True
        if failed is not None and not told:
            raise failed

    def _wait(self, reached: Callable[[], bool]) -> None:
        """Wait for the thread, with the lock held once."""
        deadline_s = self._clock() + self._wait_s
        while not reached():
            self.check()
            if (left_s := deadline_s - self._clock()) <= 0:
                raise TunerError(f"{self._objects.name} does not answer: run this again later")
            self.lock.wait(min(1.0, left_s))
        self.check()

    def _take_beats(self) -> None:
        for beat, _ in self._beats.values():
            self.give(beat, within_s=0.0)
        self._beats.clear()

    # The thread.

    def _work(self) -> None:
        try:
            while (entries := self._next()) is not None:
                if entries:
                    self._write(entries)
                self._retry(self._lease.renew)
        except TunerError as error:
            self._fail(error)
        except Exception as error:  # the thread's border: a bug must reach those who wait
            mended = TunerError(f"{self._objects.name}: {type(error).__name__}: {error}")
            mended.__cause__ = error
            self._fail(mended)
        finally:
            with contextlib.suppress(Exception):  # the border again; then it runs out by itself
                self._lease.release()

    def _fail(self, error: TunerError) -> None:
        with self.lock:
            self._error = error
            self.lock.notify_all()

    def _next(self) -> list[Entry] | None:
        """The entries of the next segment: empty if the lease is due first, None at the end."""
        with self.lock:
            renew_s = self._clock() + self._lease.renew_every_s
            if self._given_up:
                return None
            while (wait_s := self._due_s() - self._clock()) > 0:
                if self._closing:
                    return None
                if (left_s := renew_s - self._clock()) <= 0:
                    return []
                self.lock.wait(min(wait_s, left_s))
            self._take_beats()
            chosen: list[Entry] = []
            records = 0
            for entry, _ in self._queue:
                records += isinstance(entry, Measured)
                if records > MOST_RECORDS:
                    break
                chosen.append(entry)
            return chosen

    def _due_s(self) -> float:
        """The time by which the next entry must be sent."""
        if self._urgent > self._durable or len(self._queue) >= MOST_RECORDS:
            return -math.inf
        waiting = (*self._queue, *self._beats.values())
        return min((due_s for _, due_s in waiting), default=math.inf)

    def _write(self, entries: list[Entry]) -> None:
        at = self._at
        segment = Segment(at.number + 1, self._epoch, at.checksum, tuple(entries))
        added = self._retry(lambda: add(self._objects, segment))
        if added is None:
            raise loss_error(self._objects, "another process")
        self._at = added
        with self.lock:
            if self._given_up:
                return  # the index may be closed by now; it reads the segment later
            for _ in entries:
                self._queue.popleft()
            self._durable += len(entries)
            self._kept(entries, added)
            self.lock.notify_all()

    def _retry(self, ask: Callable[[], _T]) -> _T:
        """Ask an object store, repeatedly where it fails, for up to `patience_s`.

        Not after `close` gave up: a write that was reported as failed must not succeed later.
        """
        until_s = self._clock() + self._patience_s
        pause_s = 0.1
        while True:
            try:
                return ask()
            except LeaseLost:
                raise
            except TunerError:
                if self._given_up or self._clock() + pause_s >= until_s:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 5.0)
