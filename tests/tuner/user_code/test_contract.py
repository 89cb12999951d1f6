"""What a user's class lacks is named before it is used."""

from __future__ import annotations

from typing import Any, Protocol

import pytest

from tuner.errors import UsageError
from tuner.user_code.contract import check, methods_of


class Walks(Protocol):
    def walk(self, steps: int) -> int: ...

    def turn(self, *, left: bool) -> None: ...

    @property
    def tired(self) -> bool: ...


class Walker:
    tired = False

    def walk(self, steps: int, pace: float = 1.0) -> int:
        return steps

    def turn(self, *, left: bool) -> None: ...


def test_a_contract_is_its_public_methods_and_properties() -> None:
    assert methods_of(Walks) == ("walk", "turn", "tired")


def test_a_class_an_object_and_a_function_may_be_given() -> None:
    for made in (Walker, Walker(), lambda: Walker()):
        check(made, Walks, "walker")


class Lame(Walker):
    walk = None  # type: ignore[assignment]


class Sitter:
    def turn(self, *, left: bool) -> None: ...


class Odd(Walker):
    def walk(self) -> int:  # type: ignore[override]
        return 0


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Sitter, "Sitter has no walk: a walker has walk, turn, tired"),
        (Sitter(), "Sitter has no walk"),
        (Odd, r"Odd\.walk cannot be called with \(steps\), as a walker is"),
        (3, "3 is no walker: a class is wanted"),
        ([], "a class is wanted"),
    ],
)
def test_what_is_missing_is_named(made: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check(made, Walks, "walker")
