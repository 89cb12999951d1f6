"""A planted fault: a few lines of a file before and after, and where they are found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("tuner", "spaces", "actors", "cluster")
MARKS = ("-m", "not gpu and not long")
"""Which tests are asked: those of `make test`."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one place.

    Attributes:
        path: of the file, from the checkout's root.
        operator: what cosmic-ray calls the change.
        line: where it is, counted from 1, when it was drawn.
        before, after: the changed lines with those around them: they are found in files that have
            changed elsewhere since.
    """

    path: str
    operator: str
    line: int
    before: str
    after: str


@contextmanager
def plant(tree: Path, mutant: Mutant) -> Iterator[bool]:
    """Put the mutant into a checkout for the block; gives whether its place is there."""
    file = tree / mutant.path
    text = file.read_text() if file.exists() else ""
    if text.count(mutant.before) != 1:
        yield False
        return
    try:
        file.write_text(text.replace(mutant.before, mutant.after))
        yield True
    finally:
        file.write_text(text)
