"""The form of segments, and the chain that they are."""

from __future__ import annotations

import gzip
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.storage.objects.memory_objects import MemoryObjectStore
from tuner.candidate import Candidate, CandidateKind
from tuner.errors import TunerError
from tuner.record import Measurement, Record, Status, Trial
from tuner.storage.facts import (
    Defaults,
    SessionAlive,
    SessionBegun,
    SessionEnded,
    Sizes,
    Tasks,
    TrackingEntries,
)
from tuner.storage.history import History
from tuner.storage.segments.format import (
    Entry,
    Measured,
    Segment,
    Torn,
    checksum_of,
    decode,
    encode,
)
from tuner.storage.segments.index import replay
from tuner.storage.segments.log import Position, add, holds, path_of, put_aside, read_on
from tuner.storage.sqlite_store import MemoryStore
from tuner.task import Task
from tuner.utilisation import SlotSpan

GOLDEN = Path(__file__).parents[3] / "golden"

RECORD = Record(
    Trial("t", Candidate(CandidateKind.TRACE, "[1]", "space"), (("n", 3),), rung=1),
    Measurement(Status.OK, (1.0, math.inf), error="half of a pair \ud800", build_s=0.5),
    attempt=2,
    time_s=9.0,
    code_hash="ff",
)
TASK = Task("t", "matmul", "{}", '{"kind":"llvm"}', 2.0, 1e9, (((("n", 3),), 0.5),))
ENTRIES: tuple[Entry, ...] = (
    Tasks((TASK,)),
    Defaults({"t": "key"}),
    Sizes({"t": {"space": 1 << 80}}),
    SessionBegun(1, 5.0),
    SessionAlive(1, 6.0, {"runner": {"busy": 0.5}}),
    SessionAlive(1, 7.0),
    History((SlotSpan("runner", "r", "busy", 5.0, 6.5, "t"),)),
    TrackingEntries(["{}"]),
    SessionEnded(1, 8.0, "done"),
)
SEGMENT = Segment(1, 3, "", ENTRIES)


class TestFile:
    def test_gives_back_what_it_was_made_of(self) -> None:
        assert decode(encode(SEGMENT)) == SEGMENT
        vector = np.array([0.1, -2.0, np.inf, np.nan], np.float32)
        measured = (Measured(RECORD, vector), Measured(RECORD))
        first, second = decode(encode(Segment(2, 3, "ab", measured))).entries
        assert isinstance(first, Measured)
        assert isinstance(second, Measured)
        assert first.record == second.record == RECORD
        assert first.features is not None
        assert first.features.dtype == np.float32
        assert first.features.tobytes() == vector.tobytes()
        assert second.features is None

    def test_names_itself_by_the_checksum_of_what_follows(self) -> None:
        data = encode(SEGMENT)
        first, _, content = data.partition(b"\n")
        checksum = hashlib.sha256(content).hexdigest()
        assert first.decode() == f"tuner segment 5 {checksum}"
        assert checksum_of(data) == checksum

    def test_is_readable_with_ordinary_programs(self) -> None:
        _, header, body = encode(SEGMENT).split(b"\n", 2)
        assert header == b'{"number":1,"epoch":3,"previous":"","entries":9}'
        assert gzip.decompress(body).splitlines()[3] == b'{"begin":1,"time":5.0}'

    @given(st.data())
    def test_of_which_any_byte_changed_or_is_missing_is_torn(self, data: st.DataObject) -> None:
        whole = encode(SEGMENT)
        at = data.draw(st.integers(0, len(whole) - 1))
        byte = data.draw(st.integers(0, 255).filter(lambda b: b != whole[at]))
        for broken in (whole[:at] + bytes([byte]) + whole[at + 1 :], whole[:at]):
            with pytest.raises(Torn):
                decode(broken)

    def test_of_another_version_is_refused_by_name(self) -> None:
        data = encode(SEGMENT).replace(b"tuner segment 5 ", b"tuner segment 7 ", 1)
        with pytest.raises(TunerError, match=r"format version 7.*reads version 5"):
            decode(data)

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"[]\n",
            b'{"number":1,"epoch":1,"previous":"","entries":0}\nno gzip',
            b'{"number":1,"epoch":1,"previous":"","entries":1}\n' + gzip.compress(b"", mtime=0),
            b'{"number":1,"epoch":1,"previous":"","entries":1}\n' + gzip.compress(b"7\n", mtime=0),
            b'{"number":1,"epoch":1,"previous":"","entries":1}\n'
            + gzip.compress(b'{"time":1}\n', mtime=0),
        ],
    )
    def test_that_is_whole_but_none_of_ours_is_torn(self, content: bytes) -> None:
        checksum = hashlib.sha256(content).hexdigest().encode()
        with pytest.raises(Torn):
            decode(b"tuner segment 5 " + checksum + b"\n" + content)


def chain(objects: MemoryObjectStore, *epochs: int) -> list[Position]:
    """As many segments as there are epochs; where each of them ends."""
    at = Position()
    positions = []
    for epoch in epochs:
        added = add(objects, Segment(at.number + 1, epoch, at.checksum, (SessionBegun(1, 2.0),)))
        assert added is not None
        positions.append(at := added)
    return positions


def numbers(objects: MemoryObjectStore, at: Position | None = None) -> list[int]:
    return [segment.number for _, segment in read_on(objects, at or Position())]


class TestChain:
    def test_is_read_in_order_and_on_from_anywhere(self) -> None:
        objects = MemoryObjectStore()
        positions = chain(objects, *([1] * 150))
        assert numbers(objects) == list(range(1, 151))
        assert numbers(objects, positions[99]) == list(range(101, 151))
        assert [at for at, _ in read_on(objects, positions[99])] == positions[100:]
        assert numbers(objects, positions[-1]) == numbers(MemoryObjectStore()) == []

    def test_has_one_segment_of_each_number(self) -> None:
        objects = MemoryObjectStore()
        (first,) = chain(objects, 1)
        assert add(objects, Segment(1, 2, "")) is None
        again = Segment(1, 1, "", (SessionBegun(1, 2.0),))
        assert add(objects, again) == first  # the answer was lost
        assert numbers(objects) == [1]

    @pytest.mark.parametrize("torn", [b"", b"tuner segment 1 "])
    def test_ends_before_a_torn_segment(self, torn: bytes) -> None:
        objects = MemoryObjectStore()
        chain(objects, 1, 1)
        objects.objects[path_of(3)] = torn
        assert numbers(objects) == [1, 2]
        assert put_aside(objects, 3)
        assert not put_aside(objects, 3)
        assert not put_aside(objects, 2)
        assert numbers(objects) == [1, 2]
        assert objects.objects["damaged/00000003-1.seg"] == torn

    def test_with_a_torn_segment_in_the_middle_is_refused_by_name(self) -> None:
        objects = MemoryObjectStore()
        chain(objects, 1, 1, 1)
        objects.objects[path_of(2)] += b"x"
        with pytest.raises(TunerError, match=r"segments/00000002\.seg is damaged \(its checksum"):
            numbers(objects)

    def test_with_a_gap_is_refused_by_name(self) -> None:
        objects = MemoryObjectStore()
        chain(objects, 1, 1, 1)
        objects.remove(path_of(2), objects.objects[path_of(2)])
        with pytest.raises(TunerError, match=r"00000002\.seg is damaged \(it is missing"):
            numbers(objects)

    def test_of_two_runs_is_refused(self) -> None:
        objects, other = MemoryObjectStore(), MemoryObjectStore()
        chain(objects, 1, 1, 1)
        chain(other, 2, 2, 2)
        objects.objects[path_of(3)] = other.objects[path_of(3)]
        with pytest.raises(TunerError, match=r"00000003\.seg does not follow"):
            numbers(objects)

    def test_whose_epoch_falls_is_refused(self) -> None:
        objects = MemoryObjectStore()
        chain(objects, 2, 1)
        with pytest.raises(TunerError, match="wrote without a lease"):
            numbers(objects)

    def test_is_known_by_any_of_its_positions(self) -> None:
        objects, other = MemoryObjectStore(), MemoryObjectStore()
        positions = chain(objects, 1, 1)
        assert all(holds(objects, at) for at in [Position(), *positions])
        assert not holds(other, positions[0])
        chain(other, 2, 2)
        assert not any(holds(other, at) for at in positions)
        objects.objects[path_of(2)] = b"torn"
        assert [holds(objects, at) for at in positions] == [True, False]

    def test_is_read_to_its_end_where_a_folder_is_listed_as_it_was(self) -> None:
        class Stale(MemoryObjectStore):
            def list(self, prefix: str) -> list[str]:
                return super().list(prefix)[:1]

        objects = Stale()
        chain(objects, 1, 1, 1)
        assert numbers(objects) == [1, 2, 3]


class TestReplay:
    def test_rebuilds_what_a_store_was_told(self) -> None:
        store = MemoryStore()
        for _ in range(2):  # a second time changes nothing
            replay([*ENTRIES, Measured(RECORD, np.array([1.0], np.float32))], store)
            assert list(store.scan()) == [RECORD]
            assert store.tasks() == (TASK,)
            assert store.get(Defaults).by_task == {"t": "key"}
            (span,) = store.sessions()
            assert (span.started_s, span.ended_s, span.reason) == (5.0, 8.0, "done")
            assert span.utilisation == {"runner": {"busy": 0.5}}

    def test_keeps_the_last_heartbeat(self) -> None:
        store = MemoryStore()
        entries: Sequence[Entry] = [
            SessionBegun(1, 1.0),
            SessionAlive(1, 2.0),
            SessionBegun(2, 5.0),
            SessionAlive(1, 3.0),
        ]
        replay(entries, store)
        assert [span.heartbeat_s for span in store.sessions()] == [3.0, 5.0]
