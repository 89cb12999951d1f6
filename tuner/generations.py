"""Times of one compiler are not compared with those of another.

A run may go on after TVM, LLVM or our passes changed: its records stay, and say which candidates
are worth a look. But their times were taken with other code than is generated now. So finalists
are timed once more, in a new generation of re-timings, and only the newest generation decides. A
re-timing's rung says which generation and which round it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuner.record import Record

_RUNGS = 1000
"""Rungs of one generation: more than there are ever rounds of re-timing."""


def rung_of(generation: int, number: int) -> int:
    """The rung of a re-timing in one round of a generation.

    Args:
        number: number of the round, from 1 up.
    """
    return generation * _RUNGS + number


def generation_of(rung: int) -> int:
    """The generation that a re-timing belongs to."""
    return rung // _RUNGS


def round_of(rung: int) -> int:
    """The round of its generation that a re-timing belongs to; 0 for the search."""
    return rung % _RUNGS


def is_of(rung: int, generation: int) -> bool:
    """Whether a record of this rung belongs to the search or to the generation."""
    return rung == 0 or generation_of(rung) == generation


def first_rung(records: Iterable[Record]) -> int:
    """The first rung of the newest generation among the records."""
    return rung_of(max((generation_of(r.trial.rung) for r in records), default=0), 1)


def of_newest(records: Sequence[Record]) -> list[Record]:
    """The records of the search and of the newest generation of re-timings."""
    newest = generation_of(first_rung(records))
    return [r for r in records if is_of(r.trial.rung, newest)]


def generation_for(records: Iterable[Record], toolchain: str) -> int:
    """The generation for re-timings with a toolchain: the newest one, or the next where the newest
    was timed with another toolchain.

    Args:
        records: of a run.
        toolchain: empty where it is not known; this starts no new generation.
    """
    again = [r for r in records if r.trial.rung]
    newest = generation_of(first_rung(again))
    known = {r.provenance.toolchain for r in again if is_of(r.trial.rung, newest)} - {""}
    return newest + 1 if toolchain and known and toolchain not in known else newest
