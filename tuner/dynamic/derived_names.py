"""Names of dimensions that are computed from others, such as `T_x16_p3` for `16 * T + 3`.

Each step applies to the value before it: `x` multiplies, `p` adds, `m` subtracts, `d` divides and
rounds down. A sum of dimensions, or of such values, is `past_plus_T_x16`. Programs, records and
people keep only the name of a dimension, so its values follow from the name alone.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Mapping

PLUS = "_plus_"
"""What stands between the terms of a sum."""
_DERIVED = re.compile(r"(?P<dim>\w+?)(?P<steps>_x[0-9]+(?:_[xpmd][0-9]+)*)")
_STEP = re.compile(r"_(?P<kind>[xpmd])(?P<by>[0-9]+)")


def derive(name: str, values: Mapping[str, int]) -> int | None:
    """The value of a dimension in `values`, or of one derived from these; else None."""
    if name in values:
        return values[name]
    found = [_value(term, values) for term in name.split(PLUS)]
    known = [value for value in found if value is not None]
    return functools.reduce(operator.add, known) if len(known) == len(found) else None


def close(name: str, values: Mapping[str, int]) -> int | str:
    """A dimension with those that it follows from as numbers where they are known: `past_x1_p8` for
    `past_plus_new` where 8 are new."""
    if (whole := derive(name, values)) is not None:
        return whole
    terms = [(term, _value(term, values)) for term in name.split(PLUS)]
    *front, last = (term for term, value in terms if value is None)
    number = sum(value for _, value in terms if value is not None)
    return PLUS.join([*front, last + move(number, first=not _parts(last)[1])])


def move(by: int, *, first: bool = False) -> str:
    """The steps that add a number to a dimension.

    Args:
        first: whether there are none before them.
    """
    step = f"_p{by}" if by > 0 else f"_m{-by}" if by else ""
    return f"_x1{step}" if first and step else step


def bases_of(name: str) -> tuple[str, ...]:
    """The dimensions that a derived one follows from, each once; for any other the name itself."""
    return tuple(dict.fromkeys(_parts(term)[0] for term in name.split(PLUS)))


def rename(name: str, called: Mapping[str, str]) -> str:
    """The name of a dimension where those that it follows from are called otherwise."""
    parts = ((term, _parts(term)[0]) for term in name.split(PLUS))
    return PLUS.join(called[base] + term[len(base) :] for term, base in parts)


def text_of_name(name: str) -> str:
    """What a derived dimension is, as people write it: `16 * T + 3`; any other name as it is."""
    return " + ".join(map(_text_of_term, name.split(PLUS)))


def _text_of_term(term: str) -> str:
    text, steps = _parts(term)
    is_sum = False
    for kind, by in steps:
        if kind == "x":
            inner = f"({text})" if is_sum else text
            text = inner if by == 1 else f"{by} * {inner}"
        elif kind == "d":
            text = f"({text}) // {by}" if is_sum or "*" in text else f"{text} // {by}"
        else:
            text = f"{text} {'+' if kind == 'p' else '-'} {by}"
        is_sum = kind in "pm"
    return text


def describe_value(name: str, value: int) -> str:
    """The value of a dimension, told of the one that it follows from where there is only one such:
    `T=17` for 52 of `3 * T + 1`."""
    base, steps = _parts(name)
    inside = value
    for kind, by in reversed(steps):
        if PLUS in name or kind == "d" or (kind == "x" and (by == 0 or inside % by)):
            return f"{text_of_name(name)}={value}"
        inside = {"x": inside // (by or 1), "p": inside - by, "m": inside + by}[kind]
    return f"{text_of_name(base)}={inside}"


def _value(term: str, values: Mapping[str, int]) -> int | None:
    base, steps = _parts(term)
    value = values.get(base)
    for kind, by in steps:
        if value is None or (kind == "d" and by == 0):
            return None
        value = {"x": value * by, "p": value + by, "m": value - by, "d": value // (by or 1)}[kind]
    return value


def _parts(term: str) -> tuple[str, list[tuple[str, int]]]:
    match = _DERIVED.fullmatch(term)
    if match is None:
        return term, []
    return match["dim"], [(s["kind"], int(s["by"])) for s in _STEP.finditer(match["steps"])]
