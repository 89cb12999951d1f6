"""An end for what a process started, however that process ends: `python -m benchmarks.fleet.guard`.

A Ray head that somebody started as a process of its own knows nothing of who wanted it, and where
that one is killed it would stay. The guard waits for the end of a pipe which only that one holds,
and then ends all processes that carry its mark in their environment, wherever in the tree.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

MARK = "TUNER_FLEET_MARK"
"""Variable that all processes of a cluster inherit, so that they are found again."""
_ROOT = Path(__file__).resolve().parents[2]
_GONE_S = 10.0
_ROUNDS = 5


def start_guard(mark: str, *, name: str = MARK) -> subprocess.Popen[bytes]:
    """Have all processes that will carry this mark in variable `name` ended with this one.

    Close the `stdin` of what this gives to have them ended now; keep it for as long as they live.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.fleet.guard", name, mark],
        stdin=subprocess.PIPE,
        cwd=_ROOT,
        # Not itself one of those that a guard of its parent's ends.
        env={key: value for key, value in os.environ.items() if key != name},
        start_new_session=True,
    )


def marked(mark: str, *, name: str = MARK) -> list[psutil.Process]:
    """Processes that inherited this mark, this one aside."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(name) == mark:
                found.append(process)
    return found


def kill(processes: Sequence[psutil.Process]) -> None:
    """End processes at once, each by its own number, and wait until they are gone."""
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=_GONE_S)


def end_marked(mark: str, *, name: str = MARK) -> None:
    """End all processes with this mark, those as well that they start while they are ended."""
    for _ in range(_ROUNDS):
        if not (found := marked(mark, name=name)):
            return
        kill(found)


def main(name: str, mark: str) -> None:
    """Wait for the end of standard input, then end who carries the mark."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_marked(mark, name=name)


if __name__ == "__main__":
    main(*sys.argv[1:])
