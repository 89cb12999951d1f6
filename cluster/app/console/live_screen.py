"""A picture that is drawn again and again on a terminal, until a key ends it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console, RenderableType
from rich.live import Live

_ENDS = frozenset("qQ\x04")


def show_live(
    console: Console,
    picture: Callable[[], RenderableType],
    ended: Callable[[float], bool],
    *,
    every_s: float = 1.0,
) -> None:
    """Draw until `ended`, and leave the last picture on the screen.

    Args:
        picture: what there is to see now.
        ended: waits so many seconds, or until the user has had enough; whether that is so.
    """
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(picture(), refresh=True)
            if ended(every_s):
                return


@contextlib.contextmanager
def keys() -> Iterator[Callable[[float], bool]]:
    """Gives what waits for the key `q`; without a keyboard it only waits. Keys are not shown."""
    try:
        import termios
        import tty

        keyboard = sys.stdin.fileno()
        before = termios.tcgetattr(keyboard)
    except (ImportError, OSError, ValueError, AttributeError, termios.error):
        yield _wait
        return
    on_term = signal.signal(signal.SIGTERM, _leave)  # else the terminal would stay as it is now
    tty.setcbreak(keyboard)
    try:
        yield lambda timeout_s: _is_pressed(keyboard, timeout_s)
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, on_term)


def _leave(*_: object) -> None:
    sys.exit(128 + signal.SIGTERM)


def _wait(timeout_s: float) -> bool:
    time.sleep(timeout_s)
    return False


def _is_pressed(keyboard: int, timeout_s: float) -> bool:
    """Whether a key that ends it is pressed in time; other keys do nothing."""
    until_s = time.monotonic() + timeout_s
    while (left_s := until_s - time.monotonic()) > 0:
        if not select.select([keyboard], [], [], left_s)[0]:
            return False
        typed = os.read(keyboard, 64)
        if not typed:  # the terminal is gone
            return True
        if _ENDS & set(typed.decode(errors="replace")):
            return True
    return False
