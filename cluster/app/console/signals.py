"""SIGINT and SIGTERM while tuning: the first ends the run in order, a second SIGINT at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def leave(code: int) -> None:
    """Show the terminal's cursor again, and end this process at once."""
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), b"\x1b[?25h\n")
    os._exit(code)


class StopSignals:
    """Turns the first signal into `stop`; a second SIGINT leaves at once.

    Before `install` nothing waits for `stop`, so a signal raises `KeyboardInterrupt` in the main
    thread instead. Ray replaces the handler of SIGTERM as it starts: call `install` after that.

    Args:
        stop: set at the first signal.
        leave: ends the process with an exit code.
    """

    def __init__(self, stop: threading.Event, *, leave: Callable[[int], None] = leave) -> None:
        self._stop, self._leave = stop, leave
        self._before: dict[signal.Signals, signal._HANDLER] = {}
        self.received: int | None = None

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._interrupt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def install(self) -> None:
        """Turn signals into `stop` from now on, since somebody waits for it."""
        for number in _SIGNALS:
            signal.signal(number, self._ask)
        if self.received is not None:
            self._stop.set()

    @property
    def exit_code(self) -> int:
        """The exit code, by shells' convention, for the first signal; for SIGINT if none came."""
        return 128 + (self.received or signal.SIGINT)

    @property
    def note(self) -> str:
        """The line for the user while the run ends; empty before a signal."""
        if self.received is None:
            return ""
        return "stopping: results are kept; Ctrl-C again leaves at once"

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._first(number):
            raise KeyboardInterrupt

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._first(number):
            self._stop.set()

    def _first(self, number: int) -> bool:
        """Whether this is the first signal; leaves at once if it is a second SIGINT."""
        if self.received is None:
            self.received = number
            return True
        if number == signal.SIGINT:
            self._leave(128 + number)
        return False
