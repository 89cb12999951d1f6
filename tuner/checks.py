"""Checks of a request's values: the same, in the same words, from Python and the command line.

Each takes a value, or the text that a user types for it, and gives the value. It raises
`UsageError` with one line, which shows the value as a user would write it.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Collection, Iterable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeGuard

from tuner.errors import UsageError, first_line
from tuner.precision import DRAWN

STRATEGIES = ("evolutionary", "random", "replay-function")
"""Names of the search strategies, see `tuner.search.registry`."""
LARGEST = 2**31 - 1
MOST_VALUES = 1 << 16
"""The most values that one symbolic dimension may have."""
DIMENSIONS = "write for example T=1..128, M=16..2048:16 or T=5,24,43"
TIES = f"{DIMENSIONS}, or all=past+new of one that follows from others"
LIBRARY_ENDINGS = (".so", ".tar", ".dylib", ".dll")
"""Endings of a library's name: the linker goes by them."""
INPUTS = "write NAME=FILE.npy or NAME=int:LO..HI"
_LONGEST_S = 366 * 86400.0
DIGITS = re.compile(r"[0-9]{1,10}")
DECIMAL = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][+-]?[0-9]{1,3})?")
_DURATION = re.compile(
    r"(?:(?P<d>N)d)?(?:(?P<h>N)h)?(?:(?P<m>N)m)?(?:(?P<s>N)s)?".replace("N", r"[0-9]+(?:\.[0-9]+)?")
)
_UNITS_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_ENTRY_POINTS = "elastic_tuner"
_ENTRY_POINT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_HOST_PORT = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_OF_A_CLIENT = "ray://"


def whole(value: object, *, at_least: int) -> int:
    """A whole number from `at_least` up to 2147483647."""
    typed = value.strip() if isinstance(value, str) else ""
    number = int(typed) if DIGITS.fullmatch(typed) else _integer(value)
    if number is None or not at_least <= number <= LARGEST:
        raise UsageError(f"{str(value)!r} is not a whole number from {at_least} to {LARGEST}")
    return number


def positive(value: object) -> int:
    """A whole number from 1 to 2147483647."""
    return whole(value, at_least=1)


def seed(value: object) -> int:
    """A whole number from 0 to 2147483647."""
    return whole(value, at_least=0)


def duration_s(value: object) -> float:
    """A duration in seconds, or as `90s`, `20m`, `1h30m` or `2d`: more than 0, at most 366 days."""
    if not isinstance(value, str):
        return _seconds(value, f"{value}s")
    match = _DURATION.fullmatch(value.strip())
    if not match or not any(match.groups()):
        return _seconds(None, value)
    return _seconds(sum(float(match[unit] or 0) * s for unit, s in _UNITS_S.items()), value)


def _seconds(value: object, shown: str) -> float:
    if not _number(value) or not 0 <= value < math.inf:
        raise UsageError(f"{shown!r} is not a duration: write for example 90s, 20m, 1h30m or 2d")
    if not 0 < value <= _LONGEST_S:
        raise UsageError(f"{shown!r} is out of range: a duration is more than 0s and at most 366d")
    return float(value)


def one_of(what: str, value: object, known: Collection[str]) -> str:
    """Check that a value is one of the known names."""
    if not isinstance(value, str) or value not in known:
        *most, last = known
        raise UsageError(f"unknown {what} {short(value)}: write {', '.join(most)} or {last}")
    return value


def address(text: object) -> str:
    """Check an address: `auto`, `local`, or `HOST:PORT` of a Ray cluster."""
    word = text.strip() if isinstance(text, str) else ""
    if word in ("auto", "local"):
        return word
    match = _HOST_PORT.fullmatch(word)
    if not match or not 1 <= int(match["port"]) <= 65535:
        if word.startswith(_OF_A_CLIENT):
            host = word.removeprefix(_OF_A_CLIENT).rpartition(":")[0] or "HOST"
            raise UsageError(
                f"{word} is the address of Ray's client server: name the cluster itself, as a rule "
                f"{host}:6379, on a machine of the cluster or by `ray job submit`"
            )
        raise UsageError(
            f"{str(text)!r} is no address: write auto, local or HOST:PORT of a Ray cluster"
        )
    return word


def library_file(path: Path) -> Path:
    """Check the name of a library's file, and return its path."""
    if path.suffix not in LIBRARY_ENDINGS:
        raise UsageError(f"{path}: a library's name ends in {' or '.join(LIBRARY_ENDINGS[:2])}")
    return path


def nonempty(text: object) -> str:
    """Check a text that must not be empty, such as a glob, a path or a name."""
    if not isinstance(text, str):
        raise UsageError(f"{short(text)} is no text")
    if not text.strip() or "\0" in text:
        raise UsageError("it is empty; leave it out or give it a value")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UsageError(f"{text!r} is not valid UTF-8")
    return text


def extents(name: str, sizes: Sequence[object], shown: str) -> tuple[int, ...]:
    """Check the shape of an input."""
    numbers = [_integer(size) for size in sizes]
    if not name.strip() or not numbers or None in numbers:
        raise UsageError(f"{shown!r} is not a shape: write for example INPUT=1,3,224,224")
    shape = tuple(number for number in numbers if number is not None)
    if not all(1 <= size <= LARGEST for size in shape):
        raise UsageError(f"{shown!r} has an extent outside 1 to {LARGEST}")
    return shape


def dimension(name: str, values: Sequence[object], shown: str) -> tuple[int, ...]:
    """Check the sizes of a symbolic dimension; return each once, ascending."""
    numbers = [_integer(value) for value in values]
    if not name.strip() or not numbers or None in numbers:
        raise UsageError(f"{shown!r} is no dimension: {DIMENSIONS}")
    sizes = tuple(sorted({number for number in numbers if number is not None}))
    if not 0 <= sizes[0] <= sizes[-1] <= LARGEST:
        raise UsageError(f"{shown!r} has a size outside 0 to {LARGEST}")
    if len(sizes) > MOST_VALUES:
        raise UsageError(f"{shown!r} has more than {MOST_VALUES} values: give it a step")
    return sizes


def tie(name: str, value: object, shown: str) -> str:
    """Check that there is a name, and a text of what it follows from: `past + new`."""
    if not name.strip() or not isinstance(value, str) or not value.strip():
        raise UsageError(f"{shown!r} is no dimension: {TIES}")
    return value


def input_name(name: str, shown: str) -> str:
    """Check the name of an input that a value is given for."""
    if not name.strip():
        raise UsageError(f"{shown!r} is not an input: {INPUTS}")
    return name


def integers(name: str, low: object, high: object, shown: str) -> tuple[int, int]:
    """Check the range that an input's integers are drawn from."""
    least, most = _integer(low), _integer(high)
    input_name(name, shown)
    if least is None or most is None or least > most:
        raise UsageError(f"{shown!r} is not a range of integers: write NAME=int:LO..HI, LO <= HI")
    return least, most


def array_file(name: str, path: object, shown: str) -> Path:
    """Check the file with an input's value."""
    input_name(name if str(path) else "", shown)
    if not isinstance(path, str | Path) or not str(path).endswith(".npy"):
        raise UsageError(f"{shown!r} names no .npy file: {INPUTS}")
    return Path(path)


def samples(text: object) -> str:
    """Check what names inputs to look at numbers on: a `.npz` file, or `drawn`."""
    if text == DRAWN or (isinstance(text, str | Path) and str(text).endswith(".npz")):
        return str(text)
    raise UsageError(f"{short(text)} names no inputs: write FILE.npz or {DRAWN}")


def argument(name: str, shown: str) -> str:
    """Check the name of a function's argument."""
    if not name.strip().isidentifier():
        raise UsageError(f"{shown!r} is not an argument: write for example m=512")
    return name.strip()


def code_name(text: object, what: str) -> tuple[str, str]:
    """Check what names an object of a user's code: a Python file with a name in it or none, or a
    module with a name in it.

    Args:
        what: it should be, for the message.
    """
    where, colon, name = str(text).rpartition(":")
    where, name = (where, name) if colon else (name, "")
    in_file = where.endswith(".py") and (name.isidentifier() or not colon)
    in_module = name.isidentifier() and all(part.isidentifier() for part in where.split("."))
    if not (in_file or in_module):
        raise UsageError(
            f"{short(text)} is no {what}: give FILE.py, FILE.py:NAME or package.module:NAME"
        )
    return where, name


def layer_name(text: object, name: str) -> str:
    """Check what names a layer of a user's, and return it: as `code_name`, or the name of an entry
    point of an installed package, which stands for one.

    Args:
        name: of the layer, as in `tuner.layers.Layers`.
    """
    word = text if isinstance(text, str) else ""
    if not _ENTRY_POINT.fullmatch(word):
        code_name(text, name)
        return word
    group = f"{_ENTRY_POINTS}.{name}"
    for entry in entry_points(group=group, name=word):
        return entry.value
    raise UsageError(
        f"unknown {name} {short(text)}: no installed package has it as an entry point of "
        f"{group}; a file's is named as FILE.py:NAME"
    )


def strategy(text: object) -> str:
    """Check the name of a search strategy: one of `STRATEGIES`, or what names a user's own."""
    try:
        return str(text) if text in STRATEGIES else layer_name(text, "strategy")
    except UsageError as error:
        raise UsageError(f"{error}; ours are {', '.join(STRATEGIES)}") from error


def space_arguments(given: object) -> str:
    """The arguments of a space, a dictionary or the JSON of one, as canonical JSON; empty for
    none."""
    if given == "":
        return ""
    try:
        known = json.loads(given) if isinstance(given, str) else given
        text = json.dumps(known, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{short(given)} is no JSON: {first_line(error)}") from error
    if not isinstance(known, dict) or not all(str(name).isidentifier() for name in known):
        raise UsageError(f'{short(given)} are no arguments: write for example {{"most": 64}}')
    return text


def each_once(named: Iterable[tuple[str, str]]) -> None:
    """Check that no name is given twice, since one of the two values would be lost.

    Args:
        named: each name, and the text that a message shows for it.
    """
    seen: set[str] = set()
    for name, shown in named:
        if name in seen:
            raise UsageError(f"{name!r} is given twice; the second is {shown!r}")
        seen.add(name)


def share(value: object) -> float:
    """A part of a whole, from 0 to 1, or as `3%`, `0.03` or `0`."""
    if isinstance(value, str):
        number, percent, _ = value.strip().partition("%")
        if not DECIMAL.fullmatch(number) or value.strip() != number + percent:
            raise UsageError(f"{value!r} is no share: write for example 3%, 0.03 or 0")
        value = float(number) / (100 if percent else 1)
    if not _number(value) or not 0 <= value <= 1:
        raise UsageError(f"{short(value)} is no share: it is from 0 to 1")
    return float(value)


def short(value: object) -> str:
    """A value as a message shows it."""
    text = str(value)
    return repr(text if len(text) <= 60 else f"{text[:60]}...")


def _number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _integer(value: Any) -> int | None:
    """The `int` of a value of any integer type; None for anything else."""
    if isinstance(value, bool | str):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
