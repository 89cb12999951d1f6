"""From the text of a user's file to the spaces that it declares."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from spaces.intrinsics.registration import register_missing
from tuner.errors import TunerError, UsageError
from tuner.source import Source
from tuner.space.declare import parts_of
from tuner.space.parts import Part
from tuner.user_code.load import load


@lru_cache(maxsize=32)
def load_parts(source: Source) -> tuple[Part, ...]:
    """The spaces that a file declares. Its text runs once in each process.

    Raises:
        TunerError: it does not run, or declares none; the text names file and line.
    """
    value = _load(source)
    try:
        return parts_of(value)
    except UsageError as error:
        raise TunerError(f"{source.file}: {source.name}: {error}") from error


def _load(source: Source) -> Any:
    """What a file holds. One that makes TVM's rules may name intrinsics, which are registered when
    they are asked for."""
    while True:
        try:
            return load(source)
        except TunerError as error:
            if not register_missing(str(error)):
                raise
