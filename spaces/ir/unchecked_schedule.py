"""A schedule whose primitives are called without TVM's checks of argument types.

These checks are written in Python and take as long as the primitives themselves. They are of use
to who writes a template, and of none to who has tested it: what a primitive cannot do it still
refuses.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any


class Unchecked:
    """Stands for a `tvm.s_tir.Schedule`, which it changes."""

    __slots__ = ("_schedule",)

    def __init__(self, schedule: Any) -> None:
        self._schedule = schedule

    def __getattr__(self, name: str) -> Any:
        kind: Any = type(self._schedule)
        primitive = _primitive(kind, name)
        if primitive is None:
            return getattr(self._schedule, name)
        return partial(primitive, self._schedule)


@lru_cache(maxsize=512)
def _primitive(kind: Any, name: str) -> Any:
    """What a class's method does but for the check; None where nothing is checked."""
    return getattr(getattr(kind, name, None), "__wrapped__", None)
