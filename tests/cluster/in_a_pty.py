"""A command on a terminal of its own, whose screen and keyboard a test has."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_PATIENCE_S = 60.0
_COLUMNS, _LINES = 130, 30
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """The other end of a command's terminal.

    Attributes:
        text: all that was written so far, without colours and movements of the cursor.
    """

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor, self.process = descriptor, process
        self.text = ""

    def until(self, pattern: str) -> str:
        """Wait for a text; give what matched."""
        until_s = time.monotonic() + _PATIENCE_S
        while (found := re.search(pattern, self.text)) is None:
            assert time.monotonic() < until_s, self.text
            assert self._more(), self.text
        return found[0]

    def press(self, keys: bytes) -> None:
        """Type something."""
        os.write(self._descriptor, keys)

    def end(self) -> int:
        """Wait for the command's end; give its exit code."""
        until_s = time.monotonic() + _PATIENCE_S
        while self._more():
            assert time.monotonic() < until_s, self.text
        return self.process.wait(_PATIENCE_S)

    def echoes(self) -> bool:
        """Whether the terminal shows what is typed, as terminals do."""
        return bool(termios.tcgetattr(self._descriptor)[3] & termios.ECHO)

    def _more(self) -> bool:
        if not select.select([self._descriptor], [], [], 0.2)[0]:
            return self.process.poll() is None
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:  # all that had it open are gone
            return False
        self.text += _CONTROLS.sub("", data.decode(errors="replace"))
        return bool(data)


@contextmanager
def tuner_in_a_pty(
    *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """Run `tuner` on a terminal; it is killed if it is still there at the end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "cluster", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        cwd=cwd,
        env={**os.environ, "TERM": "xterm", **(env or {})},
    )
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(theirs)
        os.close(ours)
