"""Records as lines of JSON."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from tuner.candidate import Candidate, CandidateKind
from tuner.errors import TunerError
from tuner.record import (
    Measurement,
    Provenance,
    Record,
    Status,
    Trial,
    record_from_json,
    record_line,
)
from tuner.report.record_lines import export_records
from tuner.storage.sqlite_store import MemoryStore


def candidate(n: int) -> Candidate:
    return Candidate(CandidateKind.TRACE, f"[{n}]", "space")


def record(n: int, *seconds: float) -> Record:
    return Record(Trial("m", candidate(n)), Measurement(Status.OK, seconds))


def store_of(*records: Record) -> MemoryStore:
    store = MemoryStore()
    store.append_many([(r, None) for r in records])
    return store


def test_a_line_for_each_record_in_order(tmp_path: Path) -> None:
    written = [
        record(1, 1.0, 2.0),
        Record(
            Trial("s", candidate(2), (("n", 3),), 1),
            Measurement(Status.WRONG, (), "two\nlines \ud800", 1.0, 2.0),
            Provenance("w", "d", "t"),
            3,
            4.0,
        ),
    ]
    file = tmp_path / "records.jsonl"
    assert export_records(store_of(*written), file) == 2
    assert [record_from_json(line) for line in file.read_text().splitlines()] == written


def test_lines_are_strict_json() -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    line = record_line(record(1, math.nan, math.inf, 1.0))
    assert json.loads(line, parse_constant=refuse)["seconds"] == ["nan", "inf", 1.0]
    assert repr(record_from_json(line).measurement.samples_s) == "(nan, inf, 1.0)"


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text("old")

    class Broken(MemoryStore):
        def scan(self, *args: object, **filters: object):  # type: ignore[no-untyped-def]
            yield record(1, 1.0)
            raise TunerError("the disk is gone")

    with pytest.raises(TunerError, match="the disk is gone"):
        export_records(Broken(), file)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_pipe_or_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(TunerError, match="Not a regular file"):
        export_records(store_of(), pipe)
    assert pipe.is_fifo()


def test_an_unwritable_place_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "records.jsonl", tmp_path):
        with pytest.raises(TunerError, match="cannot write") as caught:
            export_records(store_of(), place)
        assert "\n" not in str(caught.value)
