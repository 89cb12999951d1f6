"""The chain of segments in an object store: reading it from a position, adding to its end.

The name of a segment is its number, and an object is made only if there is none: so exactly one
segment has each number, however many writers tried. A torn last segment counts as never written: no
object store makes one, but a disk may be at fault, and earlier versions wrote in place where there
are no hard links.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tuner.errors import TunerError
from tuner.storage.objects.base import ObjectStore
from tuner.storage.segments.format import Segment, Torn, checksum_of, decode, encode

_log = logging.getLogger(__name__)

FOLDER = "segments/"
_DAMAGED = "damaged/"
_NAME = re.compile(r"segments/([0-9]{8,})\.seg")
_AT_ONCE = 64
"""Segments that are read at the same time."""


@dataclass(frozen=True, slots=True)
class Position:
    """The end of a chain: the number, checksum and epoch of its last segment."""

    number: int = 0
    checksum: str = ""
    epoch: int = 0


def path_of(number: int) -> str:
    """The name of a segment."""
    return f"{FOLDER}{number:08}.seg"


def last_number(objects: ObjectStore) -> int:
    """The highest number of any segment, torn or not; 0 where there is none."""
    matches = (_NAME.fullmatch(path) for path in objects.list(FOLDER))
    return max((int(match[1]) for match in matches if match), default=0)


def holds(objects: ObjectStore, at: Position) -> bool:
    """Whether the chain in an object store goes through this position."""
    if not at.number:
        return True
    data = objects.read([path_of(at.number)]).get(path_of(at.number), b"")
    try:
        return checksum_of(data) == at.checksum
    except Torn:
        return False


def read_on(objects: ObjectStore, at: Position) -> Iterator[tuple[Position, Segment]]:
    """Yield the segments after a position, in order, each with the position at its end.

    Raises:
        TunerError: a segment is missing, damaged (the last one aside) or does not follow its
        predecessor.
    """
    last = max(at.number, last_number(objects))
    while objects.read([path_of(last + 1)]):
        last += 1  # a shared file system may list a folder as it was a moment ago
    for start in range(at.number + 1, last + 1, _AT_ONCE):
        numbers = range(start, min(start + _AT_ONCE, last + 1))
        found = objects.read([path_of(number) for number in numbers])
        for number in numbers:
            data = found.get(path_of(number))
            try:
                if data is None:
                    raise Torn("it is missing")
                segment = decode(data)
            except Torn as error:
                if number == last:
                    _log.warning("%s %s counts as never written: %s", objects.name, number, error)
                    return
                raise TunerError(
                    f"{objects.name}: segment {path_of(number)} is damaged ({error}) and others "
                    "follow it: bring back a copy of it, or use another run"
                ) from error
            _refuse_stranger(objects, at, number, segment)
            at = Position(number, checksum_of(data), segment.epoch)
            yield at, segment


def _refuse_stranger(objects: ObjectStore, at: Position, number: int, segment: Segment) -> None:
    follows = segment.number == number and segment.previous == at.checksum
    if not follows or segment.epoch < at.epoch:
        raise TunerError(
            f"{objects.name}: segment {path_of(number)} does not follow the one before it: "
            "files of two runs are mixed there, or someone wrote without a lease"
        )


def add(objects: ObjectStore, segment: Segment) -> Position | None:
    """Add a segment; return its position, or None where another segment has its number.

    The same bytes under its number were added by an earlier attempt whose answer was lost.

    Raises:
        TunerError: trouble with the object store; the segment may have been added or not.
    """
    data, path = encode(segment), path_of(segment.number)
    if not objects.create(path, data) and objects.read([path]).get(path) != data:
        return None
    return Position(segment.number, checksum_of(data), segment.epoch)


def put_aside(objects: ObjectStore, number: int) -> bool:
    """Move a torn segment away, for the holder of the lease. Return False if it is whole.

    Only the bytes that were seen to be torn are removed, and only after a copy was kept: a segment
    that a newer holder of the lease has put there meanwhile stays.
    """
    data = objects.read([path_of(number)]).get(path_of(number))
    if data is None:
        return False
    try:
        checksum_of(data)
    except Torn:
        _keep_damaged(objects, number, data)
        return objects.remove(path_of(number), data)
    return False


def _keep_damaged(objects: ObjectStore, number: int, data: bytes) -> None:
    for n in itertools.count(1):
        kept = f"{_DAMAGED}{number:08}-{n}.seg"
        if objects.create(kept, data) or objects.read([kept]).get(kept) == data:
            return
