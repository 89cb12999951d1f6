"""The file of a space that a user names, or that declares an object of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tuner.space.declare import parts_of
from tuner.space.parts import DEFAULT_NAME, Program, Rules, Template
from tuner.task import SpaceSource
from tuner.user_code import find


def read_source(text: str, arguments: str = "") -> SpaceSource:
    """What `FILE.py[:NAME]` or `package.module:NAME` names.

    Raises:
        UsageError, TunerError: as `tuner.user_code.find.find`.
    """
    return SpaceSource.of(find.find(text, arguments, what="space", usual_name=DEFAULT_NAME))


def source_of(value: Any) -> SpaceSource:
    """The file that declares a space of the program that runs; the space itself, pickled, where no
    file has it under a name.

    Raises:
        UsageError: the object is no space, or has no name and cannot be pickled: other processes
            could not find it.
    """
    parts_of(value)
    return SpaceSource.of(
        find.source_of(value, _modules(value), what="space", usual_name=DEFAULT_NAME)
    )


def _modules(value: Any) -> Iterator[str]:
    """The modules in which an object may have a name: those of its functions, and the program."""
    for part in parts_of(value):
        if isinstance(part, Template | Program):
            yield part.function.__module__
        if isinstance(part, Rules):
            yield from (getattr(m, "function", m).__module__ for m in part.members)
    yield getattr(value, "__module__", "")
    yield "__main__"
