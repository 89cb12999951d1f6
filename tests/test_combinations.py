"""Of tests with the mark `each_value`, `make test` leaves out what has no value of its own."""

from __future__ import annotations

import pytest

from tests.combinations import cover


@pytest.mark.each_value
@pytest.mark.parametrize(("letter", "vowel"), [("a", True), ("b", False), ("c", False)])
@pytest.mark.parametrize("number", [1, 2, pytest.param(3, marks=pytest.mark.long), 4])
def test_each_value_is_in_one_variant_that_is_not_long(
    letter: str, vowel: bool, number: int, request: pytest.FixtureRequest
) -> None:
    assert vowel == (letter == "a")
    known = [
        item
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == request.node.originalname
    ]
    chosen = [item for item in known if item.get_closest_marker("long") is None]
    assert chosen == cover(known)
    assert len(chosen) == 3
    assert {item.callspec.params["letter"] for item in chosen} == {"a", "b", "c"}
    assert {item.callspec.params["number"] for item in chosen} == {1, 2, 4}
