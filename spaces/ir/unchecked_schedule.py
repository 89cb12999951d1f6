"""A proxy of `tvm.s_tir.Schedule` that skips TVM's run-time checks of argument types.

TVM wraps each primitive in a check that is written in Python and takes as long as the primitive
itself. The check helps while a template is written, and no longer once it is tested: primitives
still refuse arguments that they cannot handle.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any


class Unchecked:
    """The methods of the `tvm.s_tir.Schedule` that it is given, unchecked; they change that one."""

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
    """The method of a class that the check wraps; None where nothing is checked."""
    return getattr(getattr(kind, name, None), "__wrapped__", None)
