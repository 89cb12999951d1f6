"""Names of dimensions that are computed from another one, such as `T_x16_p3` for `16 * T + 3`.

Each step applies to the value before it: `x` multiplies, `p` adds, `m` subtracts, `d` divides and
rounds down. Programs, records and people keep only the name of a dimension, so its values follow
from the name alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_DERIVED = re.compile(r"(?P<dim>\w+?)(?P<steps>_x[0-9]+(?:_[xpmd][0-9]+)*)")
_STEP = re.compile(r"_(?P<kind>[xpmd])(?P<by>[0-9]+)")


def derive(name: str, values: Mapping[str, int]) -> int | None:
    """The value of a dimension in `values`, or of one derived from these; else None."""
    if name in values:
        return values[name]
    base, steps = _parts(name)
    if not steps or base not in values:
        return None
    value = values[base]
    for kind, by in steps:
        if kind == "d" and by == 0:
            return None
        value = {"x": value * by, "p": value + by, "m": value - by, "d": value // (by or 1)}[kind]
    return value


def base_of(name: str) -> str:
    """The dimension that a derived one is named after; for any other the name itself."""
    return _parts(name)[0]


def text_of_name(name: str) -> str:
    """What a derived dimension is, as people write it: `16 * T + 3`; any other name as it is."""
    text, steps = _parts(name)
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
        if kind == "d" or (kind == "x" and (by == 0 or inside % by)):
            return f"{text_of_name(name)}={value}"
        inside = {"x": inside // (by or 1), "p": inside - by, "m": inside + by}[kind]
    return f"{base}={inside}"


def _parts(name: str) -> tuple[str, list[tuple[str, int]]]:
    match = _DERIVED.fullmatch(name)
    if match is None:
        return name, []
    return match["dim"], [(s["kind"], int(s["by"])) for s in _STEP.finditer(match["steps"])]
