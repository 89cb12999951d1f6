"""Parses what users type of a model: text in, values out, nothing opened or looked up.

Every function raises `UsageError` with one line that names the text and shows a right one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from tuner import checks
from tuner.checks import DECIMAL, DIGITS, DIMENSIONS, INPUTS, LARGEST, MOST_VALUES, TIES
from tuner.dynamic.dimension_text import name_expression
from tuner.errors import UsageError
from tuner.request.model_spec import IntRange

_T = TypeVar("_T")
_LETTER = re.compile(r"[^\W\d]")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_RANGE = re.compile(
    r"(?P<low>N)(?:\.\.(?P<high>N)(?::(?P<step>N))?)?".replace("N", r"-?[0-9]{1,10}")
)


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Name and extents of `INPUT=1,3,224,224`."""
    name, equals, extents = text.rpartition("=")
    sizes = [size.strip() for size in extents.split(",")]
    if not (name.strip() and equals and all(DIGITS.fullmatch(size) for size in sizes)):
        raise UsageError(f"{text!r} is not a shape: write for example INPUT=1,3,224,224")
    return name.strip(), checks.extents(name, [int(size) for size in sizes], text)


def dimension(text: str) -> tuple[str, tuple[int, ...]]:
    """Name and values of `T=1..128`, `M=16..2048:16` or `T=5,24,43`; each value once, in order."""
    name, equals, spec = text.partition("=")
    if not (equals and name.strip() and spec.strip()):
        raise UsageError(f"{text!r} is no dimension: {DIMENSIONS}")
    values: set[int] = set()
    for part in spec.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise UsageError(f"{text!r} is no dimension: {DIMENSIONS}")
        low = int(match["low"])
        high, step = int(match["high"] or low), int(match["step"] or 1)
        if not 0 <= low <= LARGEST or not 0 <= high <= LARGEST:
            raise UsageError(f"{text!r} has a size outside 0 to {LARGEST}")
        if high < low or step < 1:
            raise UsageError(f"{text!r} is an empty range: {DIMENSIONS}")
        if (high - low) // step >= MOST_VALUES:
            raise UsageError(f"{text!r} has more than {MOST_VALUES} values: give it a step")
        values.update(range(low, high + 1, step))
        if len(values) > MOST_VALUES:
            break
    return name.strip(), checks.dimension(name, list(values), text)


def dimension_or_tie(text: str) -> tuple[str, tuple[int, ...] | str]:
    """The same, or name and text of a dimension that follows from others: `all=past+new`."""
    name, equals, value = text.partition("=")
    if not (equals and _LETTER.search(value)):
        return dimension(text)
    if name_expression(value) is None:
        raise UsageError(f"{text!r} is no dimension: {TIES}")
    return name.strip(), checks.tie(name, value.strip(), text)


def split_ties(dims: Iterable[tuple[str, Any]]) -> tuple[tuple[tuple[str, Any], ...], ...]:
    """Dimensions with sizes, and those that are a text."""
    found = tuple(dims)
    ties = tuple((name, value) for name, value in found if isinstance(value, str))
    return tuple((name, value) for name, value in found if not isinstance(value, str)), ties


def size(text: str) -> tuple[str, tuple[int]]:
    """Name and one size of a symbolic dimension: `T=16`."""
    name, equals, number = text.partition("=")
    if not (equals and name.strip() and DIGITS.fullmatch(number.strip())):
        raise UsageError(f"{text!r} is no size of a dimension: write for example T=16")
    if not int(number):
        raise UsageError(f"{text!r} has a size outside 1 to {LARGEST}")
    return name.strip(), (checks.dimension(name, [int(number)], text)[0],)


def input_value(text: str) -> tuple[str, Path | IntRange]:
    """Name and value of `NAME=FILE.npy` or `NAME=int:LO..HI`, both ends included."""
    name, _, value = text.partition("=")
    if not (name.strip() and value):
        raise UsageError(f"{text!r} is not an input: {INPUTS}")
    if value.startswith("int:"):
        ends = value.removeprefix("int:").partition("..")[::2]
        low, high = (int(end) if _INTEGER.fullmatch(end) else None for end in ends)
        return name.strip(), IntRange(*checks.integers(name, low, high, text))
    return name.strip(), checks.array_file(name, value, text)


def argument(text: str) -> tuple[str, str | int | float]:
    """Name and value of `m=512`: an integer or a decimal if it is written as one, else the text."""
    name, equals, value = text.partition("=")
    name = checks.argument(name if equals else "", text)
    if _INTEGER.fullmatch(value):
        return name, int(value)
    return name, float(value) if DECIMAL.fullmatch(value) else value


def distinct(
    texts: Iterable[str], parse: Callable[[str], tuple[str, _T]]
) -> tuple[tuple[str, _T], ...]:
    """Parse each text; a name given twice is an error, since one of the two would be lost."""
    typed = list(texts)
    values = [parse(text) for text in typed]
    checks.each_once((name, text) for (name, _), text in zip(values, typed, strict=True))
    return tuple(values)
