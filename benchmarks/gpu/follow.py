"""A command in a process group of its own, its lines handed on as they come, with a deadline."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO

_LAST_WORDS = 300
_PIECE_BYTES = 1 << 16


def follow(command: Sequence[str], *, limit_s: float, note: Callable[[str], object]) -> str:
    """Run a command to its end, or until `limit_s` seconds are over, when its group is killed.

    Args:
        note: gets each line of the standard output.

    Returns:
        How it failed, with its last words; empty if it ended well.
    """
    until_s = time.monotonic() + limit_s
    with (
        tempfile.TemporaryFile("w+", errors="replace") as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            process_group=0,
        ) as child,
    ):
        try:
            _hand_on(child, until_s, note)
            code = child.wait(max(0.0, until_s - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired):
            return f"not done after {limit_s:.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        return "" if code == 0 else f"exit code {code}: {_last_words(errors)}"


def _hand_on(child: subprocess.Popen[bytes], until_s: float, note: Callable[[str], object]) -> None:
    assert child.stdout is not None
    rest = b""
    while True:
        left_s = until_s - time.monotonic()
        ready, _, _ = select.select([child.stdout], [], [], max(0.0, left_s))
        if not ready:
            raise TimeoutError
        piece = os.read(child.stdout.fileno(), _PIECE_BYTES)
        *lines, rest = (rest + piece).split(b"\n")
        for line in [*lines, *([rest] if rest and not piece else [])]:
            note(line.decode(errors="replace"))
        if not piece:
            return


def _last_words(errors: IO[str]) -> str:
    errors.seek(0)
    lines = [line.strip() for line in errors if line.strip()]
    return lines[-1][:_LAST_WORDS] if lines else "not a word"
