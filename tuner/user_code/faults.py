"""Exceptions of a user's object in the process of a worker, and where they come from."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from tuner.errors import TunerError
from tuner.source import Source
from tuner.user_code.load import complaint


class LayerFailed(TunerError):
    """A user's object raised, or did not return in time; the text names file and line."""


@contextmanager
def blame(source: Source | None, what: str, *, always: bool = True) -> Iterator[None]:
    """Turn what a user's object raises in the length of a block into `LayerFailed`.

    Args:
        source: the user's file; None is that the object is ours.
        what: the object is, for messages.
        always: whatever is raised is its fault. Else only what a line of its own file raised: what
            it called, as a compiler, may refuse what it was given.

    Raises:
        LayerFailed: it raised.
    """
    try:
        yield
    except LayerFailed:
        raise
    except Exception as error:  # a user's code may raise anything
        if source is not None and (always or _is_own(error, source.file)):
            raise LayerFailed(f"{complaint(error, source.file)} ({what})") from error
        raise


def _is_own(error: Exception, file: str) -> bool:
    """Whether a line of a file raised, and nothing that it called."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename == file
