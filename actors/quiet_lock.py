"""Quiet on a machine while a kernel is timed on its CPU: all our other processes are frozen.

A directory that all workers of a node share holds their common state:

    lock            flock: its holder times a kernel
    clock           seconds frozen so far, and the section in progress
    <pid>           one for each process that may be frozen, with the time it started and the
                    process that registered it, whose child it is

The directory is its user's alone, links in it are not followed, and only this user's processes that
are children of the process that registered them are stopped: nobody else can have one frozen. A
section takes the lock, stops the registered process groups, and lets them go on when it is over. If
its holder dies the kernel frees the lock, and the first supervisor of a frozen process that looks
(each does every tenth of a second through `watch`) resumes all of them, those of other runs too. A
section that runs over its limit is broken in the same way: a stopped or wedged holder cannot keep a
node frozen. A process that may outlive the one that registered it must be resumed without it: a
child is killed with its supervisor, `tuner.tracking.tracker` has somebody wake the tracker.

Frozen time is counted on the system's monotonic clock, which all processes of a machine share,
so that supervisors can add it to their deadlines. All processes are granted the whole of it: one
that was registered in the middle of a section gets a little more than it lost.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import struct
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from tuner.errors import TunerError
from tuner.files.atomic import write_bytes
from tuner.files.locks import try_flock
from tuner.files.own_folder import make_own
from tuner.process.proc import read_stat

PLACE = Path("quiet")
"""The directory's place in the folder that all runs of this user share on a node."""
_CLOCK = struct.Struct("ddd")
"""Total seconds frozen in past sections; start and limit of the section in progress."""
_RETRY_S = 0.005
_STOP_WAIT_S = 0.05


class NotQuiet(Exception):
    """The lock was not free in time: others were timing throughout."""


class Quiet:
    """The quiet lock of one node.

    Args:
        directory: directory shared by all workers of this node alone; made if missing.
        limit_s: longest that a section may freeze the node.

    Raises:
        TunerError: the directory is not this user's alone.
    """

    def __init__(self, directory: Path, *, limit_s: float = 60.0) -> None:
        self.limit_s = limit_s
        self._directory = directory
        self._mine: set[int] = set()
        make_own(directory)

    def register(self, pid: int) -> None:
        """Let a process be frozen, with its group if it leads one.

        It is frozen at once if a section is in progress. Its supervisor must `watch` it.
        """
        born = _read_start(pid)
        if born is None:
            return
        self._mine.add(pid)
        write_bytes(self._directory / str(pid), f"{born} {os.getpid()}".encode())
        if self._in_section():
            _send(pid, signal.SIGSTOP)

    def unregister(self, pid: int) -> None:
        """Forget a process; harmless if it is not known."""
        self._mine.discard(pid)
        (self._directory / str(pid)).unlink(missing_ok=True)

    @contextlib.contextmanager
    def section(self, deadline_s: float, *, spare: Collection[int] = ()) -> Iterator[None]:
        """Hold the machine quiet.

        Args:
            deadline_s: time to wait for the lock.
            spare: registered processes that are not frozen, such as the one that times.

        Raises:
            NotQuiet: the lock was not free within `deadline_s`.
        """
        with self._lock(deadline_s) as held:
            if not held:
                raise NotQuiet(f"no quiet section within {deadline_s:g} s")
            self._settle_clock()
            frozen: list[int] = []
            self._write_clock(self._read_clock()[0], time.monotonic(), self.limit_s)
            try:
                for pid in self._find_registered():
                    if pid in spare or not _is_child(pid, _read(self._directory / str(pid))[1]):
                        continue
                    if _send(pid, signal.SIGSTOP):
                        frozen.append(pid)
                _wait_stopped(frozen)
                yield
            finally:
                self._settle_clock()
                # A process killed meanwhile is not registered any more, but its group may live.
                for pid in {*frozen, *self._find_registered()}:
                    _send(pid, signal.SIGCONT)

    def frozen_s(self) -> float:
        """Seconds this node spent frozen so far, the section in progress included."""
        total_s, since_s, limit_s = self._read_clock()
        return total_s + _section_s(since_s, limit_s)

    def resume_if_abandoned(self) -> None:
        """Let all processes go on if the section that froze them lost its holder or ran over."""
        _, since_s, limit_s = self._read_clock()
        overrun = since_s > 0 and _section_s(since_s, limit_s) >= limit_s
        with self._lock(0.0) as held:
            if held:
                self._settle_clock()
            for pid in self._find_registered() if held or overrun else ():
                # On a busy machine, a stop may still be on its way to one that looks running.
                _send(pid, signal.SIGCONT)

    def watch(self, pid: int | None = None) -> Callable[[], float]:
        """A `frozen_s` for the supervisor of a process, which also resumes the process when due.

        Args:
            pid: the process; None means all that were registered through this object.
        """

        def frozen_s() -> float:
            if any(_is_stopped(one) for one in (tuple(self._mine) if pid is None else (pid,))):
                self.resume_if_abandoned()
            return self.frozen_s()

        return frozen_s

    @contextlib.contextmanager
    def _lock(self, deadline_s: float) -> Iterator[bool]:
        """Take the lock; False if it is not free in time. Each call opens its own descriptor, which
        excludes other threads too. It must be the kernel's alone, which frees it even where its
        holder is killed while stopped.
        """
        until = time.monotonic() + deadline_s
        fd = _open(self._directory / "lock", os.O_RDWR | os.O_CREAT)
        try:
            while not (held := try_flock(fd)) and time.monotonic() < until:
                time.sleep(_RETRY_S)
            yield held
        finally:
            os.close(fd)

    def _find_registered(self) -> list[int]:
        """Registered processes that live. The files of dead ones are removed, and their groups
        resumed, since nobody else would do that."""
        living = []
        for path in self._directory.iterdir():
            if not path.name.isdigit():
                continue
            pid = int(path.name)
            with contextlib.suppress(FileNotFoundError):
                born = _read_start(pid)
                if _read(path)[0] == born:
                    living.append(pid)
                    continue
                if born is None:  # else the number is another process's now, and no group has it
                    _send(pid, signal.SIGCONT)
                path.unlink()
        return living

    def _in_section(self) -> bool:
        _, since_s, limit_s = self._read_clock()
        return since_s > 0 and _section_s(since_s, limit_s) < limit_s

    def _read_clock(self) -> tuple[float, float, float]:
        try:
            fd = _open(self._directory / "clock", os.O_RDONLY)
        except FileNotFoundError:
            return 0.0, 0.0, 0.0
        with os.fdopen(fd, "rb") as file:
            data = file.read(_CLOCK.size + 1)
        if len(data) != _CLOCK.size:
            return 0.0, 0.0, 0.0
        total_s, since_s, limit_s = _CLOCK.unpack(data)
        return total_s, since_s, limit_s

    def _write_clock(self, total_s: float, since_s: float, limit_s: float) -> None:
        """Write the clock, with the lock held. One small write in place: never read torn."""
        fd = _open(self._directory / "clock", os.O_WRONLY | os.O_CREAT)
        try:
            os.pwrite(fd, _CLOCK.pack(total_s, since_s, limit_s), 0)
        finally:
            os.close(fd)

    def _settle_clock(self) -> None:
        """Close the clock's section, be it our own or that of a holder that died."""
        total_s, since_s, limit_s = self._read_clock()
        if since_s > 0:
            self._write_clock(total_s + _section_s(since_s, limit_s), 0.0, 0.0)


def _open(path: Path, flags: int) -> int:
    """Open a file of the directory without following a link. Raises OSError; TunerError for a
    link."""
    try:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise TunerError(f"{path} is a link, so it is not used: remove it") from error
        raise


def _read(path: Path) -> tuple[str, str]:
    """The start time of a registered process, and the number of the process that registered it; two
    empty texts where the file is missing, a link, or another user's."""
    try:
        fd = _open(path, os.O_RDONLY)
    except (OSError, TunerError):
        return "", ""
    with os.fdopen(fd, encoding="utf-8", errors="replace") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return "", ""
        born, _, by = file.read(100).partition(" ")
        return born, by


def _is_child(pid: int, parent: str) -> bool:
    """Whether a process is this user's, and a child of the process `parent`."""
    found = read_stat(pid)
    try:
        ours = os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False
    return ours and found is not None and str(found.parent) == parent


def _section_s(since_s: float, limit_s: float) -> float:
    """Length of a section so far; at most its limit, and 0 for a section from before a reboot."""
    if since_s <= 0:
        return 0.0
    return max(0.0, min(time.monotonic() - since_s, limit_s))


def _read_start(pid: int) -> str | None:
    """The start of a process that lives; None where it does not."""
    found = read_stat(pid)
    return found.started if found is not None and found.state not in "ZX" else None


def _is_stopped(pid: int) -> bool:
    found = read_stat(pid)
    return found is not None and found.state == "T"


def _send(pid: int, number: signal.Signals) -> bool:
    """Signal the group that a process leads or led, else the process; False if both are gone."""
    for send in (os.killpg, os.kill):  # a group keeps its number after its leader has gone
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(pid, number)
            return True
    return False


def _wait_stopped(pids: Collection[int]) -> None:
    """Wait a moment until stop signals have arrived everywhere."""
    until = time.monotonic() + _STOP_WAIT_S
    while time.monotonic() < until and not all(_is_stopped_or_gone(pid) for pid in pids):
        time.sleep(0.001)


def _is_stopped_or_gone(pid: int) -> bool:
    found = read_stat(pid)
    return found is None or found.state in "TZX"
