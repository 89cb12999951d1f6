"""SIGINT and SIGTERM while tuning: an orderly end, and a way out of it."""

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
    """End this process at once, the terminal's cursor given back."""
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), b"\x1b[?25h\n")
    os._exit(code)


class StopSignals:
    """Turns the first signal into `stop`; a second SIGINT leaves at once.

    Until `install` nothing waits for `stop`, so a signal raises `KeyboardInterrupt` in the main
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
        """From now on someone waits for `stop`."""
        for number in _SIGNALS:
            signal.signal(number, self._ask)
        if self.received is not None:
            self._stop.set()

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that ended by the first signal; SIGINT if none came."""
        return 128 + (self.received or signal.SIGINT)

    @property
    def note(self) -> str:
        """What to tell the user while the run ends."""
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
        """Whether this is the first signal; leaves if it is an impatient second."""
        if self.received is None:
            self.received = number
            return True
        if number == signal.SIGINT:
            self._leave(128 + number)
        return False
