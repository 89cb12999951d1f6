"""What is made, or refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tuner.errors import TunerError

T = TypeVar("T")


def make_or_refuse(make: Callable[[], T]) -> T | None:
    """What is made; None where it is refused in one line."""
    try:
        return make()
    except TunerError as error:
        refused = str(error)
    assert "\n" not in refused
    return None
