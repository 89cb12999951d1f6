"""A process that does dangerous or heavy work for its parent, one call at a time.

The child imports a factory, calls it once, and then serves method calls on the object it made.
Parent and child trust each other: they exchange pickles over pipes of their own, so output of the
work cannot break the protocol. Failures are values: an `Outcome`. Three loops wait, one inside the
other: `_exchange` moves bytes, `poll` also looks at memory, and `_wait` also grants the time that
the child spent frozen while others needed a quiet machine (see `actors.quiet_lock`).

A child dies with its parent. It asks the kernel to be killed when its parent goes
(PR_SET_PDEATHSIG); that fires when the *thread* that made it ends, so make children on threads
that live as long as they do. As a second safeguard a thread of the child waits for the end of a
pipe that only the parent holds. Killing a child kills its whole process group, compilers it had
started included.

Memory is watched from outside, by resident size, that of compilers it had started included.
RLIMIT_AS would break runtimes that reserve address space they never use (CUDA, LLVM), and with
RLIMIT_DATA an allocation fails at some random place of the child, where it looks like any other
crash. A watched child is killed for one reason.

A child is used by one thread at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tuner.process.outcome import (
    DeadlinePassed,
    Died,
    MemoryExceeded,
    Outcome,
    Raised,
    Returned,
)
from tuner.process.proc import group_bytes, resident_bytes
from tuner.search_path import current_folder_last

_HEADER = struct.Struct(">Q")
_TICK_S = 0.1
"""The interval at which a waiting parent looks at the child's memory and at the frozen time."""
_LOOK_EVERY_S = 1.0
"""The interval at which it looks at the memory of processes that the child started."""
_EXEC_S = 0.02
_LOG_LIMIT_BYTES = 4 << 20
_BOOT = (
    "import json, sys; boot = json.loads(sys.argv[1]); sys.path[:] = boot['path']; "
    "from tuner.process.child_main import serve; serve(boot)"
)


class Child:
    """A child process and the parent's end of its pipes.

    Args:
        factory: `module:callable`, imported in the child; the parent's `sys.path` holds there,
            with the current folder at its end.
        args: arguments of the factory, which is called once. Must be picklable.
        env: variables to set on top of the parent's environment.
        memory_limit_bytes: resident size, of the child and all it started, at which it is killed
            while the parent waits for it.
        log: file for the child's output; None drops it.
    """

    def __init__(
        self,
        factory: str,
        args: tuple[Any, ...] = (),
        *,
        env: Mapping[str, str] | None = None,
        memory_limit_bytes: int | None = None,
        log: Path | None = None,
    ) -> None:
        self._limit_bytes = memory_limit_bytes
        self._outgoing = memoryview(_frame(pickle.dumps(args)))  # still to be written
        self._incoming = bytearray()  # of an answer that is not whole yet
        self._started = False  # the factory is done
        self._looked_s = 0.0  # when the group's memory was last counted
        self._ended_as: Outcome | None = None
        requests, self._to_child = os.pipe()
        self._from_child, answers = os.pipe()
        lifeline, self._lifeline = os.pipe()
        os.set_blocking(self._to_child, False)
        os.set_blocking(self._from_child, False)
        boot = {
            "requests": requests,
            "answers": answers,
            "lifeline": lifeline,
            "parent": os.getpid(),
            "path": current_folder_last(sys.path),
            "factory": factory,
        }
        try:
            with _log_file(log) as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _BOOT, json.dumps(boot)],
                    pass_fds=(requests, answers, lifeline),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, **(env or {})},
                    process_group=0,
                )
        except BaseException:
            for fd in (self._to_child, self._from_child, self._lifeline):
                os.close(fd)
            raise
        finally:
            for fd in (requests, answers, lifeline):
                os.close(fd)

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its process group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the child can take another call."""
        return self._ended_as is None and not self._exited()

    def rss_bytes(self) -> int:
        """Resident size of the child alone, shared libraries included; 0 once it is gone."""
        return resident_bytes(self.pid)

    def ready(self, timeout_s: float, *, frozen_s: Callable[[], float] | None = None) -> Outcome:
        """Wait until the factory is done.

        Args:
            frozen_s: as for `call`.

        Returns:
            `Returned(None)` once it is done (on later calls too), `DeadlinePassed` while it is not,
            with the child left alive, or the outcome of its failure.
        """
        if self._started and self._ended_as is None:
            return Returned(None)
        return self._wait(timeout_s, frozen_s) or DeadlinePassed(timeout_s)

    def start_call(self, method: str, *args: Any) -> None:
        """Begin a method call; `poll` gives its outcome, even if the child is gone. Only after
        `ready`, one call at a time."""
        if self._ended_as is None:
            self._outgoing = memoryview(_frame(pickle.dumps((method, args), protocol=5)))

    def poll(self, timeout_s: float) -> Outcome | None:
        """The outcome of the call in progress, or None if `timeout_s` passes before it comes.

        A crash is reported as soon as it happens, and so is a memory limit.
        """
        until = time.monotonic() + timeout_s
        while self._ended_as is None:
            left_s = until - time.monotonic()
            if (outcome := self._exchange(max(0.0, min(left_s, _TICK_S)))) is not None:
                return outcome
            if (exceeded := self._check_memory()) is not None:
                return exceeded
            if left_s <= 0:
                return None
        return self._ended_as

    def call(
        self,
        method: str,
        *args: Any,
        deadline_s: float,
        frozen_s: Callable[[], float] | None = None,
    ) -> Outcome:
        """Call a method and wait; a child that misses its deadline is killed.

        Args:
            deadline_s: seconds of the child's own time.
            frozen_s: gives the seconds spent frozen so far, on a clock that only goes up. It is
                called every tenth of a second; its gain since the start of the call is added to
                the deadline.
        """
        self.start_call(method, *args)
        outcome = self._wait(deadline_s, frozen_s)
        if outcome is not None:
            return outcome
        return self._end_as(DeadlinePassed(deadline_s))

    def _end_as(self, outcome: Outcome) -> Outcome:
        """Kill the child, and keep this as its final outcome."""
        self._ended_as = outcome
        self.kill()
        return outcome

    def kill(self) -> None:
        """Kill the child and everything it started. Returns when it is gone."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        if self._ended_as is None:
            self._ended_as = _death(self._process.returncode)

    def close(self) -> None:
        """Kill the child if it lives, and free the parent's resources. May be called twice."""
        self.kill()
        for name in ("_to_child", "_from_child", "_lifeline"):
            fd = getattr(self, name)
            if fd >= 0:
                os.close(fd)
                setattr(self, name, -1)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _wait(self, deadline_s: float, frozen_s: Callable[[], float] | None) -> Outcome | None:
        start_s = time.monotonic()
        frozen_before_s = frozen_s() if frozen_s else 0.0
        while True:
            frozen_now_s = frozen_s() - frozen_before_s if frozen_s else 0.0
            left_s = start_s + deadline_s + frozen_now_s - time.monotonic()
            outcome = self.poll(max(0.0, min(left_s, _TICK_S)))
            if outcome is not None or left_s <= 0:
                return outcome

    def _exchange(self, timeout_s: float) -> Outcome | None:
        """Move bytes both ways until an answer is whole or the time is over."""
        until = time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, until - time.monotonic())
            ready = self._ready_ends(left_s)
            if self._to_child in ready:
                self._send()
            if self._from_child in ready and (outcome := self._receive()) is not None:
                return outcome
            if left_s <= 0:
                return None

    def _ready_ends(self, timeout_s: float) -> set[int]:
        """The pipe ends that are ready, or closed. Not by `select`, which takes no descriptor above
        1,023, while a large fleet has more."""
        ends = select.poll()
        ends.register(self._from_child, select.POLLIN)
        if self._outgoing:
            ends.register(self._to_child, select.POLLOUT)
        return {fd for fd, _ in ends.poll(timeout_s * 1e3)}

    def _send(self) -> None:
        try:
            sent = os.write(self._to_child, self._outgoing[: 1 << 20])
        except BlockingIOError:
            return
        except BrokenPipeError:  # it died; the other pipe tells how
            sent = len(self._outgoing)
        # An empty view would keep all the bytes in memory until the next call.
        self._outgoing = self._outgoing[sent:] or memoryview(b"")

    def _receive(self) -> Outcome | None:
        try:
            data = os.read(self._from_child, 1 << 20)
        except BlockingIOError:
            return None
        if not data:
            return self._gone()
        self._incoming += data
        if len(self._incoming) < _HEADER.size:
            return None
        size = _HEADER.unpack_from(self._incoming)[0]
        if len(self._incoming) < _HEADER.size + size:
            return None
        body = bytes(self._incoming[_HEADER.size :])
        self._incoming.clear()
        outcome = _parse(body)
        if not self._started:
            self._started = isinstance(outcome, Returned)
            if not self._started:  # it never became usable
                self._end_as(outcome)
        return outcome

    def _exited(self) -> bool:
        """Whether the child ended. It stays a zombie, so that its group's id is not reused yet."""
        if self._process.returncode is not None:
            return True
        flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
        return os.waitid(os.P_PID, self.pid, flags) is not None

    def _gone(self) -> Outcome:
        """The outcome of a child that closed its pipe: it is dying, or has closed every file."""
        until = time.monotonic() + 1.0
        while not self._exited() and time.monotonic() < until:
            time.sleep(0.001)
        self.kill()
        assert self._ended_as is not None
        return self._ended_as

    def _check_memory(self) -> Outcome | None:
        if self._limit_bytes is None:
            return None
        rss = self.rss_bytes()
        if rss <= self._limit_bytes and (rss := self._rss_with_others()) <= self._limit_bytes:
            return None
        return self._end_as(MemoryExceeded(rss, self._limit_bytes))

    def _rss_with_others(self) -> int:
        """Resident size of the child and of all it started, taken once in `_LOOK_EVERY_S`; 0 in
        between. A size above the limit is taken twice: between fork and exec a process seems to
        hold its parent's memory."""
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_EVERY_S:
            return 0
        self._looked_s = now_s
        found = group_bytes(self.pid)
        if self._limit_bytes is None or found <= self._limit_bytes:
            return found
        time.sleep(_EXEC_S)
        return min(found, group_bytes(self.pid))


def _frame(body: bytes) -> bytes:
    return _HEADER.pack(len(body)) + body


def _parse(body: bytes) -> Outcome:
    try:
        good, content = pickle.loads(body)
    except Exception as error:  # classes in it may raise anything when they are rebuilt
        return Raised(type(error).__name__, f"cannot read the answer: {error}")
    return Returned(content) if good else Raised(*content)


def _death(returncode: int) -> Died:
    if returncode < 0:
        return Died(signal=-returncode, exit_code=None)
    return Died(signal=None, exit_code=returncode)


def _log_file(log: Path | None) -> BinaryIO:
    """The log, opened to append; emptied once it is large."""
    if log is None:
        return open(os.devnull, "ab")
    log.parent.mkdir(parents=True, exist_ok=True)
    large = log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES
    return open(log, "wb" if large else "ab")
