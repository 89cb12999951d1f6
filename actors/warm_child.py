"""A child process that is kept warm: replaced when it dies, grows or is suspect."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from actors.quiet_lock import Quiet
from actors.shared_folder import sweep
from tuner.files.locks import try_lock
from tuner.process.child import Child
from tuner.process.outcome import Died, Outcome, Returned

HOARDING = {
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
}
"""Environment of a child that takes some megabytes and frees them, over and over: TVM's prover does
so for each question, and so does a comparison of outputs. Giving memory back to the system each
time costs more than the work itself (9 ms instead of 2 for one `reverse_compute_at`)."""

_FOLDER_PREFIX = "tuner-work-"
_FOLDER_TRIES = 5
_TRIES = 3
"""Tries of a candidate whose child is killed from outside, as happens if it fills the memory."""


def was_killed(outcome: object, tries: int) -> bool:
    """Whether a child was killed from outside, and its work is worth another try."""
    return isinstance(outcome, Died) and outcome.from_outside and tries < _TRIES


class WarmChild:
    """A warm child and its successors, made by the same factory.

    A child's temporary files lie in a folder of its own, which is removed with it, however it ends.
    Used by one thread, which must live as long as the child (see `tuner.process.child`).

    Args:
        factory: `module:callable` and `args` for it.
        env: environment of the child, on top of this process's.
        quiet: the node's quiet lock, which the child is registered with.
        memory_limit_bytes: a child that reaches this during a call is killed.
    """

    def __init__(
        self,
        factory: str,
        args: tuple[Any, ...] = (),
        *,
        env: Mapping[str, str],
        log: Path,
        quiet: Quiet | None,
        memory_limit_bytes: int,
    ) -> None:
        self._factory, self._args = factory, args
        self._env, self._log, self._quiet = env, log, quiet
        self._memory_limit_bytes = memory_limit_bytes
        self._child: Child | None = None
        self._folder: _Folder | None = None
        self._frozen_s: Callable[[], float] | None = None
        self.fresh = True

    @property
    def pid(self) -> int:
        """Process id of the current child; 0 if there is none."""
        return self._child.pid if self._child is not None else 0

    def ready(self, deadline_s: float) -> Outcome:
        """Have a child that can take a call; start one if there is none.

        A child that fails to start is not kept.
        """
        if self._child is None or not self._child.alive:
            self.replace()
        assert self._child is not None
        outcome = self._child.ready(deadline_s, frozen_s=self._frozen_s)
        if not isinstance(outcome, Returned):
            self.close()
        return outcome

    def call(self, method: str, *args: Any, deadline_s: float, freezable: bool = True) -> Outcome:
        """Call a method of a child that is ready.

        Args:
            freezable: whether frozen time is left out; False while others are frozen for it.
        """
        assert self._child is not None
        frozen_s = self._frozen_s if freezable else None
        outcome = self._child.call(method, *args, deadline_s=deadline_s, frozen_s=frozen_s)
        if not self._child.alive:
            self._forget()
        return outcome

    def replace(self) -> None:
        """Start a fresh child, which warms up until the next `ready`."""
        self.close()
        self._folder = _Folder()
        self.fresh = True
        self._child = Child(
            self._factory,
            self._args,
            env={**self._env, "TMPDIR": str(self._folder.path)},
            memory_limit_bytes=self._memory_limit_bytes,
            log=self._log,
        )
        if self._quiet is not None:
            self._quiet.register(self._child.pid)
            self._frozen_s = self._quiet.watch(self._child.pid)

    def rss_bytes(self) -> int:
        """Resident size of the child; 0 if there is none."""
        return self._child.rss_bytes() if self._child is not None else 0

    def stopwatch(self) -> Callable[[], float]:
        """Start a stopwatch that leaves out time that the node spends frozen."""
        quiet = self._quiet
        start_s = time.monotonic()
        frozen_s = quiet.frozen_s() if quiet is not None else 0.0

        def elapsed_s() -> float:
            lost_s = quiet.frozen_s() - frozen_s if quiet is not None else 0.0
            return max(0.0, time.monotonic() - start_s - lost_s)

        return elapsed_s

    def close(self) -> None:
        """End the child and remove its files."""
        self._forget()
        if self._child is not None:
            self._child.close()
            self._child = None
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def leave(self) -> None:
        """Kill the child and remove its files, from any thread of a process that is about to end.

        No other method may be called afterwards.
        """
        child, folder = self._child, self._folder
        if child is not None and child.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        if folder is not None:
            shutil.rmtree(folder.path, ignore_errors=True)

    def _forget(self) -> None:
        if self._quiet is not None and self._child is not None:
            self._quiet.unregister(self._child.pid)


class _Folder:
    """A temporary folder, locked for as long as its owner lives.

    Making one removes the folders of owners that were killed.
    """

    path: Path
    _fd: int | None

    def __init__(self) -> None:
        sweep(Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"))
        for _ in range(_FOLDER_TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX))
            self._fd = try_lock(self.path)
            if self._fd is not None:
                return  # else another's sweep was faster, or the file system has no locks
            self.remove()
        self.path, self._fd = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX)), None

    def remove(self) -> None:
        """Remove the folder and its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
