"""What makes MLflow's pages nicer, and is not worth a record."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_log = logging.getLogger("tuner.tracker")


@contextmanager
def decoration(what: str) -> Iterator[None]:
    """Do without what a server refuses, or answers in a way that nobody expected."""
    try:
        yield
    except Exception as error:
        _log.warning("the page does without %s: %s", what, error)
