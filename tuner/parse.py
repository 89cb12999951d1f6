"""What users type, parsed: text in, values out, nothing opened or looked up.

Every function raises `UsageError` with one line that names the text and shows a right one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from tuner.errors import UsageError
from tuner.options import IntRange

TARGET_KINDS = ("llvm", "cuda")
"""Kinds of target that have a space."""

_T = TypeVar("_T")
_DURATION = re.compile(
    r"(?:(?P<d>N)d)?(?:(?P<h>N)h)?(?:(?P<m>N)m)?(?:(?P<s>N)s)?".replace("N", r"[0-9]+(?:\.[0-9]+)?")
)
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_LONGEST_S = 366 * 86400.0
_LARGEST = 2**31 - 1
_NUMBER = re.compile(r"[0-9]{1,10}")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][+-]?[0-9]{1,3})?")
_RANGE = re.compile(
    r"(?P<low>N)(?:\.\.(?P<high>N)(?::(?P<step>N))?)?".replace("N", r"-?[0-9]{1,10}")
)
_MOST_VALUES = 1 << 16
_DIMENSIONS = "write for example T=1..128, M=16..2048:16 or T=5,24,43"
_HOST_PORT = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


def duration_s(text: str) -> float:
    """Seconds of a duration such as `90s`, `20m`, `1h30m` or `2d`; more than none."""
    match = _DURATION.fullmatch(text.strip())
    if not match or not any(match.groups()):
        raise UsageError(f"{text!r} is not a duration: write for example 90s, 20m, 1h30m or 2d")
    seconds = sum(float(match[unit] or 0) * size for unit, size in _SECONDS.items())
    if not 0 < seconds <= _LONGEST_S:
        raise UsageError(f"{text!r} is out of range: a duration is more than 0s and at most 366d")
    return seconds


def positive_int(text: str) -> int:
    """A whole number from 1 to 2147483647."""
    return _integer(text, at_least=1)


def seed(text: str) -> int:
    """A whole number from 0 to 2147483647."""
    return _integer(text, at_least=0)


def _integer(text: str, *, at_least: int) -> int:
    stripped = text.strip()
    if not _NUMBER.fullmatch(stripped) or not at_least <= int(stripped) <= _LARGEST:
        raise UsageError(f"{text!r} is not a whole number from {at_least} to {_LARGEST}")
    return int(stripped)


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Name and extents of `INPUT=1,3,224,224`."""
    name, equals, extents = text.rpartition("=")
    sizes = [size.strip() for size in extents.split(",")]
    if not (name.strip() and equals and all(_NUMBER.fullmatch(size) for size in sizes)):
        raise UsageError(f"{text!r} is not a shape: write for example INPUT=1,3,224,224")
    shape = tuple(int(size) for size in sizes)
    if not all(1 <= size <= _LARGEST for size in shape):
        raise UsageError(f"{text!r} has an extent outside 1 to {_LARGEST}")
    return name.strip(), shape


def dimension(text: str) -> tuple[str, tuple[int, ...]]:
    """Name and values of `T=1..128`, `M=16..2048:16` or `T=5,24,43`; each value once, in order."""
    name, equals, spec = text.partition("=")
    if not (equals and name.strip() and spec.strip()):
        raise UsageError(f"{text!r} is no dimension: {_DIMENSIONS}")
    values: set[int] = set()
    for part in spec.split(","):
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise UsageError(f"{text!r} is no dimension: {_DIMENSIONS}")
        low = int(match["low"])
        high, step = int(match["high"] or low), int(match["step"] or 1)
        if not 1 <= low <= _LARGEST or not 1 <= high <= _LARGEST:
            raise UsageError(f"{text!r} has a size outside 1 to {_LARGEST}")
        if high < low or step < 1:
            raise UsageError(f"{text!r} is an empty range: {_DIMENSIONS}")
        if (high - low) // step >= _MOST_VALUES:
            raise UsageError(f"{text!r} has more than {_MOST_VALUES} values: give it a step")
        values.update(range(low, high + 1, step))
        if len(values) > _MOST_VALUES:
            raise UsageError(f"{text!r} has more than {_MOST_VALUES} values: give it a step")
    return name.strip(), tuple(sorted(values))


def input_value(text: str) -> tuple[str, Path | IntRange]:
    """Name and value of `NAME=FILE.npy` or `NAME=int:LO..HI`, both ends included."""
    name, _, value = text.partition("=")
    if not (name.strip() and value):
        raise UsageError(f"{text!r} is not an input: write NAME=FILE.npy or NAME=int:LO..HI")
    if value.startswith("int:"):
        low, _, high = value.removeprefix("int:").partition("..")
        if not (_INTEGER.fullmatch(low) and _INTEGER.fullmatch(high) and int(low) <= int(high)):
            raise UsageError(
                f"{text!r} is not a range of integers: write NAME=int:LO..HI, LO <= HI"
            )
        return name.strip(), IntRange(int(low), int(high))
    if not value.endswith(".npy"):
        raise UsageError(f"{text!r} names no .npy file: write NAME=FILE.npy or NAME=int:LO..HI")
    return name.strip(), Path(value)


def argument(text: str) -> tuple[str, str | int | float]:
    """Name and value of `m=512`: an integer or a decimal where it reads as one, else the text."""
    name, equals, value = text.partition("=")
    if not (equals and name.strip().isidentifier()):
        raise UsageError(f"{text!r} is not an argument: write for example m=512")
    if _INTEGER.fullmatch(value):
        return name.strip(), int(value)
    return name.strip(), float(value) if _DECIMAL.fullmatch(value) else value


def distinct(
    texts: Iterable[str], parse: Callable[[str], tuple[str, _T]]
) -> tuple[tuple[str, _T], ...]:
    """Parse each text; a name given twice is an error, since one of the two would be lost."""
    values: dict[str, _T] = {}
    for text in texts:
        name, value = parse(text)
        if name in values:
            raise UsageError(f"{name!r} is given twice; the second is {text!r}")
        values[name] = value
    return tuple(values.items())


def target(text: str) -> str:
    """`auto`, a kind with a space, or the JSON object of a TVM target of such a kind."""
    word = text.strip()
    if word == "auto" or word in TARGET_KINDS:
        return word
    kinds = " or ".join(TARGET_KINDS)
    if not word.startswith("{"):
        raise UsageError(f"unknown target {text!r}: write auto, {kinds}, or a target as JSON")
    try:
        raw = json.loads(word)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the target is not JSON ({error}): {_short(text)}") from error
    if raw.get("kind") not in TARGET_KINDS:
        kind = _short(str(raw.get("kind", "missing")))
        raise UsageError(f"the target's kind is {kind}; it must be {kinds}")
    cores = raw.get("num-cores", 1)
    if type(cores) is not int or not 1 <= cores <= _LARGEST:
        raise UsageError(f"the target's num-cores is {_short(str(cores))}; it must be 1 or more")
    return json.dumps(raw, sort_keys=True)


def address(text: str) -> str:
    """`auto`, `local`, or `HOST:PORT` of a Ray cluster."""
    word = text.strip()
    if word in ("auto", "local"):
        return word
    match = _HOST_PORT.fullmatch(word)
    if not match or not 1 <= int(match["port"]) <= 65535:
        raise UsageError(f"{text!r} is no address: write auto, local or HOST:PORT of a Ray cluster")
    return word


def nonempty(text: str) -> str:
    """Text with something in it, such as a glob, a path or a name."""
    if not text.strip() or "\0" in text:
        raise UsageError("it is empty; leave the flag out or give it a value")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UsageError(f"{text!r} is not valid UTF-8")
    return text


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}...")
