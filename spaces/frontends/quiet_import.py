"""Importers that warn, log and print: kept off the user's terminal."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def hush() -> Iterator[None]:
    """Swallow what Python code says within: warnings, prints and logging below errors.

    Not for threads: warnings filters and the standard streams belong to the whole process.
    """
    sink = io.StringIO()
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(sink),
            contextlib.redirect_stderr(sink),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
