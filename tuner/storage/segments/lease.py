"""The writer's lease: one process writes a run, and a process that lost that right is told.

    lease/00000003.json      the third lease of the run: its holder, and a count of renewals

Leases are numbered; the number is the writer's epoch. A lease is taken by making the object of the
next number, which succeeds for one process only. Before that, a challenger watches the latest
lease. If it is renewed meanwhile, it is held, and the challenger is refused; if it is not renewed
for `patience_s` on the challenger's own clock, was given back, or belongs to a dead process of this
machine, it is free. Clocks of different machines are never compared.

A holder that was presumed dead may wake up later. It is fenced off by numbers, not by time. A new
writer reads all segments and then, before it does anything else, adds a segment of its own epoch,
its seal, as the next number. If a late segment of the old writer got that number first, that
segment counts, whole, and the seal takes the number after it. Once the seal is there, the next
number that the old writer knows of is taken: its attempt to add a segment fails, and it stops. So
exactly one segment has each number, nothing that was told as durable is lost, and an older epoch
adds nothing behind the seal. All of this rests on one promise: if several processes make an object
at the same time, exactly one succeeds (`tuner.storage.objects.base.ObjectStore.create`). This is
tried out when a lease is taken, so that an object store that overwrites silently is refused before
anything is written; one that decides the race wrongly only now and then would not be detected.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tuner.errors import TunerError
from tuner.storage.objects.base import ObjectStore

FOLDER = "lease/"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES = Path("/proc/self/ns/pid")


class LeaseLost(TunerError):
    """Another process has taken over the run: this one must not write any more."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lease, with its last sign of life.

    Attributes:
        host: name of the holder's machine, for people.
        machine: tells machines and containers apart, so that a dead process can be seen to be dead.
        token: random, drawn by each holder, to recognise its own lease by.
        renewed_s: last renewal, in seconds since the epoch on the holder's clock, for people.
        beat: number of renewals.
        released: whether the lease was given back.
    """

    host: str
    machine: str
    pid: int
    token: str
    renewed_s: float
    beat: int = 0
    released: bool = False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Lease:
    """The right to write a run. Not for several threads at once.

    Args:
        objects: the run's object store.
        patience_s: time without a renewal after which a lease counts as given up; its holder renews
            it every third of that.
        clock: seconds since the epoch.
        monotonic: seconds that never go back.
        sleep: waits the given number of seconds.
    """

    def __init__(
        self,
        objects: ObjectStore,
        *,
        patience_s: float = 9.0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._objects = objects
        self._patience_s = patience_s
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._renewed_s = 0.0
        self._holder = Holder(
            socket.gethostname(), _machine(), os.getpid(), secrets.token_hex(8), clock()
        )
        self._held = False
        self.epoch = 0
        """Number of the last lease taken, even if it was given back since; 0 before the first."""

    @property
    def renew_every_s(self) -> float:
        """The interval at which `renew` has to be called."""
        return self._patience_s / 3

    def acquire(self) -> None:
        """Take the lease, once the previous holder counts as gone.

        Raises:
            TunerError: it is held, or the object store cannot decide who is first.
        """
        while True:
            last = self._latest()
            if last:
                self._outwait(last)
            mine = _text(self._holder)
            if self._objects.create(_path(last + 1), mine) or self._is_mine(last + 1):
                break
            self._sleep(0.1)  # someone was faster: look again
        if self._objects.create(_path(last + 1), mine):
            raise TunerError(
                f"{self._objects.name}: the storage overwrites an object that was to be made only "
                "if there is none, so it cannot keep a second writer out: use another"
            )
        self.epoch, self._held = last + 1, True
        self._renewed_s = self._monotonic()

    def _latest(self) -> int:
        """Number of the newest lease; 0 where there is none."""
        last = max(map(_number, self._objects.list(FOLDER)), default=0)
        while self._objects.read([_path(last + 1)]):
            last += 1  # a shared file system may list a folder as it was a moment ago
        return last

    def _outwait(self, number: int) -> None:
        """Return once the lease is free; raise if it is held."""
        seen = self._read(number)
        if seen is None or seen.released or _died_here(seen):
            return
        deadline_s = self._monotonic() + self._patience_s
        while self._monotonic() < deadline_s:
            self._sleep(min(1.0, self._patience_s / 10))
            found = self._read(number)
            if found is None or found.released:
                return
            if found != seen:
                raise TunerError(
                    f"{self._objects.name} is in use by {found}: wait until it ends, or end it"
                )

    def renew(self) -> None:
        """Renew the lease if that is due; does nothing before.

        Raises:
            LeaseLost: there is a newer lease, or this one was given back.
            TunerError: trouble with the object store; the lease may still be held.
        """
        if not self._held:
            raise LeaseLost(f"{self._objects.name}: this process gave its right to write back")
        if self._monotonic() - self._renewed_s < self.renew_every_s:
            return
        if (newer := self._read(self.epoch + 1)) is not None:
            raise loss_error(self._objects, str(newer))
        holder = self._holder
        self._holder = replace(holder, beat=holder.beat + 1, renewed_s=self._clock())
        self._objects.replace(_path(self.epoch), _text(self._holder))
        self._renewed_s = self._monotonic()

    def release(self) -> None:
        """Give the lease back; does nothing if none is held.

        Raises:
            TunerError: trouble with the object store; the lease will run out by itself.
        """
        if self._held:
            self._held = False
            self._objects.replace(_path(self.epoch), _text(replace(self._holder, released=True)))

    def _is_mine(self, number: int) -> bool:
        """Whether an attempt whose answer was lost took the lease all the same."""
        found = self._read(number)
        return found is not None and found.token == self._holder.token

    def _read(self, number: int) -> Holder | None:
        """The holder of the lease of this number; None where it cannot be read."""
        data = self._objects.read([_path(number)]).get(_path(number), b"")
        try:
            return Holder(**json.loads(data))
        except (ValueError, TypeError):
            return None


def loss_error(objects: ObjectStore, whom: str) -> LeaseLost:
    """The error of a writer that was replaced."""
    return LeaseLost(
        f"{objects.name}: {whom} has taken over this run, so this process stops; what it had not "
        "stored yet is measured again there"
    )


def _path(number: int) -> str:
    return f"{FOLDER}{number:08}.json"


def _number(path: str) -> int:
    """The number in the name of a lease; 0 for another file."""
    digits = path.removeprefix(FOLDER).removesuffix(".json")
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def _text(holder: Holder) -> bytes:
    return json.dumps(asdict(holder)).encode()


def _died_here(holder: Holder) -> bool:
    """Whether the holder was a process of this machine, and is gone."""
    if holder.machine != _machine() or not holder.machine:
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _machine() -> str:
    """An id of this boot of the machine and of this container; empty where not known."""
    with suppress(OSError):
        return f"{_BOOT.read_text().strip()} {os.readlink(_PROCESSES)}"
    return ""
