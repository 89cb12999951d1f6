"""TVM's objects as users derive them in Python: what they lack is said before they are used."""

from __future__ import annotations

from typing import Any, TypeVar

from tuner.errors import UsageError

_T = TypeVar("_T")


def complete(value: _T) -> _T:
    """The object itself, which has all methods of its contract.

    Raises:
        UsageError: it was derived from one of TVM's classes and lacks a method, which TVM would
            tell only when it calls it.
    """
    derived: Any = type(getattr(value, "_inst", None))
    for name in getattr(derived, "_tvm_metadata", {}).get("methods", ()):
        owner = next(base for base in derived.__mro__ if name in vars(base))
        if "_tvm_metadata" in vars(owner):  # TVM's own class, whose method raises
            raise UsageError(f"{derived.__name__} has no method {name}")
    return value
