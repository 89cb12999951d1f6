"""The file that a user names, or that declares an object of theirs, as it goes to all machines."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner import checks
from tuner.errors import TunerError, UsageError, first_line
from tuner.space.declare import parts_of
from tuner.space.parts import DEFAULT_NAME, Rules, Template
from tuner.task import SpaceSource

_RELATIVE = re.compile(r"^\s*from \.", re.MULTILINE)
"""Imports that work within their package only."""


def read_source(text: str, arguments: str = "") -> SpaceSource:
    """What `FILE.py[:NAME]` or `package.module:NAME` names.

    Args:
        arguments: see `SpaceSource`.

    Raises:
        UsageError: it is no such text.
        TunerError: there is no such file or module.
    """
    return replace(_source(text), arguments=arguments)


def _source(text: str) -> SpaceSource:
    where, name = checks.space(text)
    if not where.endswith(".py"):
        return _of_module(where, name)
    try:
        return SpaceSource(where, Path(where).read_text(encoding="utf-8"), name or DEFAULT_NAME)
    except FileNotFoundError as error:
        raise TunerError(f"{where}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise TunerError(f"{where} cannot be read: {error}") from error


def _of_module(module: str, name: str) -> SpaceSource:
    """A space of an installed package: all machines import it, and its text is part of its version.

    Raises:
        TunerError: there is no such module here.
    """
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        raise TunerError(f"{module} cannot be imported: {error}") from error
    if found is None or found.origin is None:
        raise TunerError(f"there is no module {module}")
    digest = hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()
    return SpaceSource(module, f"# {digest}\nfrom {module} import {name}\n", name)


def source_of(value: Any) -> SpaceSource:
    """The file that declares an object of the program that runs; the object itself, pickled, where
    no file has it under a name.

    Raises:
        UsageError: the object is no space, or has no name and cannot be pickled: other processes
            could not find it.
    """
    parts_of(value)
    for module_name in _modules(value):
        module = sys.modules.get(module_name)
        file = getattr(module, "__file__", None)
        if file is None:
            continue
        for name, held in vars(module).items():
            if held is value:
                text = Path(file).read_text(encoding="utf-8")
                alone = not _RELATIVE.search(text)
                return SpaceSource(file, text, name) if alone else _of_module(module_name, name)
    return _pickled(value)


def _pickled(value: Any) -> SpaceSource:
    """An object as text that gives it.

    Raises:
        UsageError: something in it cannot be pickled.
    """
    import cloudpickle

    try:
        data = base64.b64encode(cloudpickle.dumps(value)).decode()
    except Exception as error:  # what a user's object holds may raise anything
        raise UsageError(
            f"space: other processes must be able to find it ({first_line(error)}): "
            f"give it a name at the top of a Python file, SPACE = space.union(...)"
        ) from error
    text = f"import base64, pickle\n{DEFAULT_NAME} = pickle.loads(base64.b64decode({data!r}))\n"
    return SpaceSource("<program>", text, DEFAULT_NAME, pickled=True)


def _modules(value: Any) -> Iterator[str]:
    """The modules in which an object may have a name: those of its functions, and the program."""
    for part in parts_of(value):
        if isinstance(part, Template):
            yield part.function.__module__
        if isinstance(part, Rules):
            yield from (getattr(m, "function", m).__module__ for m in part.members)
    yield getattr(value, "__module__", "")
    yield "__main__"
