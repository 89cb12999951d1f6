"""ONNX's own tests of its operators: each is right, or refused in one line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import pytest

from tests.spaces.frontends.onnx.node_tests import Result, cases, drawn, result, results

pytestmark = pytest.mark.tvm

SEED = 38
RIGHT = 1400
"""At least so many of all are right."""
NAMES_IT = re.compile(
    r"operator \S+ |(input|output) \S+ (is no tensor|holds strings|is of \S+, which)"
)
"""In a refusal: what is not taken, and why."""


def faults(found: Iterable[Result]) -> str:
    """Those that are neither right nor refused as they should be, a line of each."""
    return "\n".join(f"{one.name} {one.kind}: {one.why}" for one in found if not is_well(one))


def is_well(one: Result) -> bool:
    named = NAMES_IT.search(one.why) is not None and "\n" not in one.why
    return one.kind == "right" or (one.kind == "refused" and named)


@pytest.mark.slow
def test_a_drawn_tenth_is_right_or_refused() -> None:
    assert faults(map(result, drawn(0.1, SEED))) == ""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_all_are_right_or_refused() -> None:
    found = [*results(sorted(cases()))]
    assert faults(found) == ""
    assert Counter(one.kind for one in found)["right"] >= RIGHT
