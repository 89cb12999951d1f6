"""Times of one compiler are not compared with those of another.

A run may go on after TVM, LLVM or our passes changed: its records stay, and say which candidates
are worth a look. But who is the fastest of them was found with other code than is made now. So
finalists are timed once more, in a generation of re-timings of their own, and only the newest of
these decides. A re-timing's rung says which one it is of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuner.record import Record

_RUNGS = 1000
"""Of one generation; nobody is timed again so often."""


def rung_of(generation: int, number: int) -> int:
    """The rung of a re-timing.

    Args:
        number: of the round, from 1 up.
    """
    return generation * _RUNGS + number


def generation_of(rung: int) -> int:
    """Which generation a re-timing is of."""
    return rung // _RUNGS


def round_of(rung: int) -> int:
    """Which round of its generation a re-timing is of; 0 of the search."""
    return rung % _RUNGS


def is_of(rung: int, generation: int) -> bool:
    """Whether a record of this rung is one of the search, or a re-timing of the generation."""
    return rung == 0 or generation_of(rung) == generation


def first_rung(records: Iterable[Record]) -> int:
    """The least rung of the newest generation that any of the records is of."""
    return rung_of(max((generation_of(r.trial.rung) for r in records), default=0), 1)


def of_newest(records: Sequence[Record]) -> list[Record]:
    """Records of the search, and of re-timings the newest generation's."""
    newest = generation_of(first_rung(records))
    return [r for r in records if is_of(r.trial.rung, newest)]


def generation_for(records: Iterable[Record], toolchain: str) -> int:
    """The generation that re-timings with a toolchain are of: the newest there is, or the next
    where that was timed with another.

    Args:
        records: of a run.
        toolchain: empty where it is not known, which starts no generation.
    """
    again = [r for r in records if r.trial.rung]
    newest = generation_of(first_rung(again))
    known = {r.provenance.toolchain for r in again if is_of(r.trial.rung, newest)} - {""}
    return newest + 1 if toolchain and known and toolchain not in known else newest
