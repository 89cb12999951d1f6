"""Words for what a user's function draws, and how a schedule deals with it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from tuner.errors import UsageError

_PEEL = "pragma_loop_partition_hint"
_NAMED: ContextVar[dict[str, Any] | None] = ContextVar("named", default=None)


def sample_tile(schedule: Any, loop: Any, parts: int, most: int) -> list[Any]:
    """Draw factors of a loop, which need not divide its extent, for `schedule.split`.

    Args:
        loop: its extent must be known.
        parts: the number of factors; the first, which is the outermost, is left open.
        most: the others are drawn from 1 to this, or to the extent, each the likelier the smaller
            it is (log-uniform).

    Raises:
        UsageError: there are fewer than two parts, or `most` is below 1.
    """
    if parts < 2 or most < 1:
        raise UsageError(f"sample_tile: {parts} parts of at most {most}: want 2 and 1 at least")
    values = list(range(1, min(most, int(schedule.get(loop).extent)) + 1))
    whole = sum(1 / value for value in values)
    odds = [1 / value / whole for value in values]
    return [None, *(schedule.sample_categorical(values, odds) for _ in range(parts - 1))]


def peel(schedule: Any, *loops: Any) -> None:
    """Ask for the last steps of loops apart from the others, which need no predicates then."""
    for loop in loops:
        schedule.annotate(loop, _PEEL, 1)


def named(name: str, drawn: Any) -> Any:
    """Name what was drawn, an integer or a list of them, for the predicate `where`; it is returned
    as it is."""
    noted = _NAMED.get()
    if noted is not None:
        noted[name] = drawn
    return drawn


@contextlib.contextmanager
def names_noted() -> Iterator[dict[str, Any]]:
    """What is named in the length of a block, by name."""
    noted: dict[str, Any] = {}
    token = _NAMED.set(noted)
    try:
        yield noted
    finally:
        _NAMED.reset(token)
