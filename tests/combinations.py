"""Which variants of a test with the mark `each_value` run in `make test`: each value of each of its
parameters is in one of them at least; all other combinations are `long`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest

Value = tuple[tuple[str, int], ...]


def leave_combinations(items: Iterable[pytest.Item]) -> None:
    """Mark as `long` what `make test` can do without."""
    tests = defaultdict[str, list[pytest.Function]](list)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("each_value") is not None:
            tests[item.nodeid.partition("[")[0]].append(item)
    for variants in tests.values():
        chosen = cover(variants)
        for item in variants:
            if item not in chosen:
                item.add_marker(pytest.mark.long)


def cover(variants: Iterable[pytest.Function]) -> list[pytest.Function]:
    """Variants that have all values of all parameters between them, few of them, the first ones
    where there is a choice. Those that are `long` already are none of them."""
    left = {v: _values(v) for v in variants if v.get_closest_marker("long") is None}
    missing, chosen = set[Value]().union(*left.values()), list[pytest.Function]()
    while missing:
        chosen.append(max(left, key=lambda variant: len(left[variant] & missing)))
        missing -= left[chosen[-1]]
    return chosen


def _values(variant: pytest.Function) -> set[Value]:
    """What each `parametrize` gives it, told apart by the objects, which variants share."""
    found = set[Value]()
    for mark in variant.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        found.add(tuple((name, id(variant.callspec.params[name])) for name in names))
    return found
