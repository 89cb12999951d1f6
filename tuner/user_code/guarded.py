"""A user's object in the process that must go on: each call has a deadline, each exception a line.

The calls are made on one thread of the object's own, which is left behind if it does not return.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tuner.source import Source
from tuner.user_code.faults import LayerFailed
from tuner.user_code.load import complaint

DEADLINE_S = 60.0
_Answer = tuple[Any, BaseException | None]
_Call = tuple[Callable[[], Any], "queue.SimpleQueue[_Answer]"]


def guard(
    make: Callable[[], Any], source: Source, what: str, *, deadline_s: float = DEADLINE_S
) -> Any:
    """An object with the public methods and properties of one that a user's code makes.

    Each raises `LayerFailed` where the user's raises, or does not return in time.

    Args:
        make: makes the user's object, on the thread that all of its calls are made on.
        source: the user's file.
        what: the object is, for messages, such as `search strategy`.
        deadline_s: for each call.

    Raises:
        LayerFailed: the object could not be made.
    """
    thread = _Thread(source, what, deadline_s)
    theirs = thread.ask("making it", make)
    kind = type(theirs)
    # A class of its own for each, as protocols are looked for in classes.
    members = {
        name: _forward(name, theirs, thread) for name in dir(kind) if not name.startswith("_")
    }
    return type(f"Guarded{kind.__name__}", (), members)()


def _forward(name: str, theirs: Any, thread: _Thread) -> Any:
    if not callable(getattr(type(theirs), name)):
        return property(lambda _: thread.ask(name, lambda: getattr(theirs, name)))
    method = getattr(theirs, name)
    return lambda _, *args, **named: thread.ask(name, lambda: method(*args, **named))


class _Thread:
    """The thread that makes the calls to one object."""

    def __init__(self, source: Source, what: str, deadline_s: float) -> None:
        self._source, self._what, self._deadline_s = source, what, deadline_s
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=what, daemon=True)
        self._thread.start()

    def ask(self, name: str, call: Callable[[], Any]) -> Any:
        answer: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        self._calls.put((call, answer))
        try:
            value, error = answer.get(timeout=self._deadline_s)
        except queue.Empty:
            raise LayerFailed(
                f"{self._place()}: {self._what}: {name} has not returned for {self._deadline_s:g} s"
            ) from None
        if error is not None:
            said = complaint(error, self._source.file)
            raise LayerFailed(f"{said} ({self._what}, {name})") from error
        return value

    def _serve(self) -> None:
        while True:
            call, answer = self._calls.get()
            try:
                value = call()
                # What is read bit by bit is read here.
                answer.put((iter(list(value)) if isinstance(value, Iterator) else value, None))
            except BaseException as error:  # a user's code may raise anything
                answer.put((None, error))

    def _place(self) -> str:
        """The line of the user's file that is at work now."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        while frame is not None:
            if frame.f_code.co_filename == self._source.file:
                return f"{self._source.file}:{frame.f_lineno}"
            frame = frame.f_back
        return self._source.file
