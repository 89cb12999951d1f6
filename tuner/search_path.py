"""Where Python looks for modules: a file of a user's named `random.py` must not stand for Python's.

`python -m` and Ray put the current folder before all others. Nothing is imported here but what each
Python has imported when it starts.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder that our packages lie in."""


def is_in_current_folder() -> bool:
    """Whether our packages lie in the current folder, which then has to come first."""
    return os.path.realpath(ROOT) == _here()


def current_folder_last(path: list[str]) -> list[str]:
    """A search path with the current folder behind all others, unless our packages lie there."""
    here = _here()
    if not here or is_in_current_folder():
        return [*path]
    others = [entry for entry in path if os.path.realpath(entry or here) != here]
    return others if len(others) == len(path) else [*others, here]


def put_current_folder_last() -> None:
    """Have this process look for modules in the current folder last."""
    sys.path[:] = current_folder_last(sys.path)


def _here() -> str:
    """The current folder; empty where it was removed."""
    try:
        return os.path.realpath(os.getcwd())
    except OSError:
        return ""
