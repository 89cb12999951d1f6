"""Imports a library without the optional libraries that it imports for convenience."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

HEAVY_EXTRAS = ("pandas", "scipy.stats", "sklearn")
"""xgboost imports these where it finds them, for callers who hold data frames or estimators:
1 s of processor time in every process, three quarters of its import."""


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Make modules that are not imported yet look as if they were not installed.

    For the first import of a library in a process that will not need these modules later.
    """
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None is "not found"
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)
