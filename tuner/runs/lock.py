"""The lock of a run folder: one process at a time works on a run.

The kernel keeps the lock (`tuner.files.locks`); the text in the file only tells people who holds
it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tuner.errors import TunerError
from tuner.files.locks import try_flock, unlock

_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lock.

    Attributes:
        pid: its process id on `host`.
        host: name of its machine.
        started_s: time at which it took the lock, in seconds since the epoch.
        serves: id of the process on `host` that it works for, and soon ends after.
    """

    pid: int
    host: str
    started_s: float
    serves: int | None = None


class RunLock:
    """Holds the lock file `path` for the length of a `with` block.

    A lock held by a living process is refused at once. A lock whose named holder is gone is free,
    unless a child that it left behind still has the file open: then this waits for that child. It
    also waits for a holder whose own master was killed, since such a holder is about to end.

    Args:
        path: the lock file; its folder must exist.
        serves: a process of this machine that the holder works for, and soon ends after.
        wait_s: time to wait for processes that a dead holder left behind.
        clock: seconds since the epoch.
        monotonic: seconds that never go back.
        sleep: waits the given number of seconds.
    """

    def __init__(
        self,
        path: Path,
        *,
        serves: int | None = None,
        wait_s: float = 30.0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._path = path
        self._serves = serves
        self._wait_s = wait_s
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            TunerError: another process holds it, or the file cannot be written.
        """
        if self._descriptor is not None:
            raise RuntimeError("the lock is held already")
        try:
            # O_CLOEXEC: programs that this process starts must not keep the lock after it.
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise TunerError(f"cannot lock {self._path}: {error.strerror}") from error
        try:
            self._wait_for(descriptor)
            self._sign(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise TunerError(f"cannot lock {self._path}: {error.strerror}") from error
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _wait_for(self, descriptor: int) -> None:
        deadline = self._monotonic() + self._wait_s
        while not try_flock(descriptor):
            holder = read_holder(self._path)
            if holder is not None and _may_stay(holder):
                raise TunerError(
                    f"{self._path.parent} is in use by process {holder.pid} on {holder.host}: "
                    "wait until it ends, or end it"
                )
            if self._monotonic() >= deadline:
                whom = f"a child of process {holder.pid}" if holder else "a process"
                raise TunerError(
                    f"{self._path.parent} is in use by {whom}: end it, then run this again"
                )
            self._sleep(_POLL_S)

    def _sign(self, descriptor: int) -> None:
        holder = Holder(os.getpid(), socket.gethostname(), self._clock(), self._serves)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, (json.dumps(asdict(holder)) + "\n").encode(), 0)

    def release(self) -> None:
        """Give the lock back; does nothing if it is not held."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        try:
            os.ftruncate(descriptor, 0)  # it names no holder, so others who find it taken try again
            unlock(descriptor)
        finally:
            os.close(descriptor)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def read_holder(path: Path) -> Holder | None:
    """The process that signed a lock file last; None where none has, or one is just doing so.

    A named holder may not hold the lock any more.
    """
    try:
        return Holder(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _may_stay(holder: Holder) -> bool:
    if holder.host != socket.gethostname():
        return True  # its machine cannot be asked from here, and the lock is held
    return _lives(holder.pid) and (holder.serves is None or _lives(holder.serves))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
