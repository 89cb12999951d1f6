"""From the text of a user's file to the object in it that was named."""

from __future__ import annotations

import inspect
import json
import linecache
import sys
import traceback
import types
from functools import lru_cache
from typing import Any

from tuner.errors import TunerError, describe_error, first_line
from tuner.source import Source, text_hash


def load(source: Source) -> Any:
    """The object that a source names. Its text runs once in each process.

    Raises:
        TunerError: it does not run, or has no such object; the text names file and line.
    """
    found = vars(_module(source.file, source.text))
    if source.name not in found:
        raise TunerError(f"{source.file} has no {source.name}: name another as {source.file}:NAME")
    value = found[source.name]
    return _call(value, source) if source.arguments else value


@lru_cache(maxsize=32)
def _module(file: str, text: str) -> types.ModuleType:
    module = types.ModuleType(f"_theirs_{text_hash(file + text)[:16]}")
    module.__file__ = file
    # Messages quote lines of the file, which need not be on this machine.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    sys.modules[module.__name__] = module  # TVMScript and dataclasses look it up
    try:
        exec(compile(text, file, "exec"), vars(module))
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        del sys.modules[module.__name__]
        raise TunerError(complaint(error, file)) from error
    return module


def _call(function: Any, source: Source) -> Any:
    """What a file's function makes of the arguments that were given.

    Raises:
        TunerError: it is no function, or it raises.
    """
    if not (inspect.isfunction(function) or inspect.isclass(function)):
        raise TunerError(
            f"{source.file}: {source.name} is no function: arguments are for one that makes it"
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
        said = describe_error(error)
    return f"{file}:{lines[-1]}: {said}" if lines else f"{file}: {said}"
