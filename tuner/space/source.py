"""The file that a user names, or that declares an object of theirs, as it goes to all machines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner import checks
from tuner.errors import TunerError, UsageError
from tuner.space.declare import parts_of
from tuner.space.parts import DEFAULT_NAME, Rules, Template
from tuner.task import SpaceSource


def read_source(text: str) -> SpaceSource:
    """The file that `FILE[:NAME]` names.

    Raises:
        UsageError: it is no such text.
        TunerError: the file cannot be read.
    """
    file, name = checks.space(text)
    name = name or DEFAULT_NAME
    try:
        return SpaceSource(file, Path(file).read_text(encoding="utf-8"), name)
    except FileNotFoundError as error:
        raise TunerError(f"{file}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise TunerError(f"{file} cannot be read: {error}") from error


def source_of(value: Any) -> SpaceSource:
    """The file that declares an object of the program that runs.

    Raises:
        UsageError: the object is no space, or no file has it under a name: other processes could
            not find it.
    """
    parts_of(value)
    for module_name in _modules(value):
        module = sys.modules.get(module_name)
        file = getattr(module, "__file__", None)
        if file is None:
            continue
        for name, held in vars(module).items():
            if held is value:
                return SpaceSource(file, Path(file).read_text(encoding="utf-8"), name)
    raise UsageError(
        "space: other processes must be able to find it: give it a name at the top of a Python "
        "file, SPACE = space.union(...)"
    )


def _modules(value: Any) -> Iterator[str]:
    """The modules in which an object may have a name: those of its functions, and the program."""
    for part in parts_of(value):
        if isinstance(part, Template):
            yield part.function.__module__
        if isinstance(part, Rules):
            yield from (getattr(m, "function", m).__module__ for m in part.members)
    yield getattr(value, "__module__", "")
    yield "__main__"
