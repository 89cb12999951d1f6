"""The file that a user names, or that declares an object of theirs, as it goes to all machines."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tuner import checks
from tuner.errors import TunerError, UsageError, first_line
from tuner.source import Source

_RELATIVE = re.compile(r"^\s*from \.", re.MULTILINE)
"""Imports that work within their package only."""


def find(text: str, arguments: str = "", *, what: str, usual_name: str) -> Source:
    """What `FILE.py[:NAME]` or `package.module:NAME` names.

    Args:
        arguments: see `Source`.
        what: it should be, for messages, such as `space`.
        usual_name: the name in a file where none is given.

    Raises:
        UsageError: it is no such text.
        TunerError: there is no such file or module.
    """
    where, name = checks.code_name(text, what)
    if not where.endswith(".py"):
        return _of_module(where, name, arguments)
    try:
        content = Path(where).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise TunerError(f"{where}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise TunerError(f"{where} cannot be read: {error}") from error
    return Source(where, content, name or usual_name, arguments)


def find_layer(text: str, name: str) -> Source:
    """What `FILE.py[:NAME]`, `package.module:NAME` or the name of an entry point names.

    Args:
        name: of the layer, as in `tuner.layers.Layers`; in capitals it is the name in a file where
            none is given.

    Raises:
        UsageError: it is no such text, or no installed package has such an entry point.
        TunerError: there is no such file or module.
    """
    return find(checks.layer_name(text, name), what=name, usual_name=name.upper())


def resolve_layer(value: Any, name: str) -> Source:
    """The file that declares a layer's class, or the class itself, see `source_of`.

    Args:
        name: as for `find_layer`.

    Raises:
        UsageError: other processes could not find it.
    """
    modules = (getattr(value, "__module__", ""), "__main__")
    return source_of(value, modules, what=name, usual_name=name.upper())


def _of_module(module: str, name: str, arguments: str = "") -> Source:
    """An object of an installed package: all machines import it, and its text is part of its
    version.

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
    return Source(module, f"# {digest}\nfrom {module} import {name}\n", name, arguments)


def source_of(value: Any, modules: Iterable[str], *, what: str, usual_name: str) -> Source:
    """The file that declares an object of the program that runs; the object itself, pickled, where
    no file has it under a name.

    Args:
        modules: names of modules in which it may have a name.
        what, usual_name: see `find`.

    Raises:
        UsageError: it has no name and cannot be pickled: other processes could not find it.
    """
    for module_name in modules:
        module = sys.modules.get(module_name)
        file = getattr(module, "__file__", None)
        if file is None:
            continue
        for name, held in vars(module).items():
            if held is value:
                text = Path(file).read_text(encoding="utf-8")
                alone = not _RELATIVE.search(text)
                return Source(file, text, name) if alone else _of_module(module_name, name)
    return _pickle(value, what, usual_name)


def _pickle(value: Any, what: str, name: str) -> Source:
    """An object as text that gives it.

    Raises:
        UsageError: something in it cannot be pickled.
    """
    import cloudpickle

    try:
        data = base64.b64encode(cloudpickle.dumps(value)).decode()
    except Exception as error:  # what a user's object holds may raise anything
        raise UsageError(
            f"{what}: other processes must be able to find it ({first_line(error)}): "
            f"give it a name at the top of a Python file, {name} = ..."
        ) from error
    text = f"import base64, pickle\n{name} = pickle.loads(base64.b64decode({data!r}))\n"
    return Source("<program>", text, name, pickled=True)
