"""From the text of a user's file to the spaces that it declares."""

from __future__ import annotations

import inspect
import json
import linecache
import sys
import traceback
import types
from functools import lru_cache
from typing import Any

from tuner.errors import TunerError, UsageError, first_line, named_line
from tuner.space.declare import parts_of
from tuner.space.parts import DEFAULT_NAME, Part
from tuner.task import SpaceSource


@lru_cache(maxsize=32)
def declared(source: SpaceSource) -> tuple[Part, ...]:
    """The spaces that a file declares. Its text runs once in each process.

    Raises:
        TunerError: it does not run, or declares none; the text names file and line.
    """
    module = types.ModuleType(f"_space_{source.version}")
    module.__file__ = source.file
    # Messages quote lines of the file, which need not be on this machine.
    lines = source.text.splitlines(keepends=True)
    linecache.cache[source.file] = (len(source.text), None, lines, source.file)
    sys.modules[module.__name__] = module  # TVMScript and dataclasses look it up
    try:
        exec(compile(source.text, source.file, "exec"), vars(module))
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        del sys.modules[module.__name__]
        raise TunerError(complaint(error, source.file)) from error
    if not hasattr(module, source.name):
        hint = "" if source.name != DEFAULT_NAME else f": name another as {source.file}:NAME"
        raise TunerError(f"{source.file} has no {source.name}{hint}")
    value = getattr(module, source.name)
    if source.arguments:
        value = _called(value, source)
    try:
        return parts_of(value)
    except UsageError as error:
        raise TunerError(f"{source.file}: {source.name}: {error}") from error


def _called(function: Any, source: SpaceSource) -> Any:
    """What a file's function makes of the arguments that were given.

    Raises:
        TunerError: it is no function, or it raises.
    """
    if not inspect.isfunction(function):
        raise TunerError(
            f"{source.file}: {source.name} is no function: arguments are for one that gives a space"
        )
    try:
        return function(**json.loads(source.arguments))
    except Exception as error:  # a user's code may raise anything
        raise TunerError(complaint(error, source.file)) from error


def complaint(error: BaseException, file: str) -> str:
    """An exception in one line that begins with the place in a user's file that it came from."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"{file}:{error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    said = first_line(error)
    if not isinstance(error, TunerError) and not said.startswith(type(error).__name__):
        said = named_line(error)
    return f"{file}:{lines[-1]}: {said}" if lines else f"{file}: {said}"
