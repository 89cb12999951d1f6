"""Records that come back from files."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tuner.candidate import Candidate, CandidateKind
from tuner.errors import TunerError
from tuner.record import Measurement, Record, Status, Trial, record_line
from tuner.report.record_lines import export_records
from tuner.storage.facts import Tasks
from tuner.storage.restore import Restored, restore
from tuner.storage.sqlite_store import MemoryStore, SqliteStore
from tuner.task import Task
from tuner.tracking.entries import TrackingPaths
from tuner.tracking.reader import RunReader

TASK = Task("t", "matmul", "{}", "{}")


def record(n: int, task: str = "t") -> Record:
    candidate = Candidate(CandidateKind.TRACE, f"[{n}]", "space")
    return Record(
        Trial(task, candidate), Measurement(Status.OK, (1.0 + n, float("nan"))), time_s=float(n)
    )


def a_store(*records: Record) -> MemoryStore:
    store = MemoryStore()
    store.put(Tasks([TASK]))
    store.append_many([(r, None) for r in records])
    return store


def lines(store: MemoryStore) -> list[str]:
    return [record_line(r) for r in store.scan()]


def test_an_exported_run_comes_back_whole(tmp_path: Path) -> None:
    lost = a_store(*(record(n) for n in range(600)))
    export_records(lost, tmp_path / "records.jsonl")
    store = a_store()
    assert restore([tmp_path / "records.jsonl"], store) == Restored(600, 0, 0)
    assert lines(store) == lines(lost)
    assert restore([tmp_path / "records.jsonl"], store) == Restored(0, 600, 0)


def test_what_the_tracker_kept_comes_back(tmp_path: Path) -> None:
    lost = a_store(*(record(n) for n in range(450)))
    with closing(SqliteStore(tmp_path / "records.sqlite")) as store:
        store.append_many([(r, None) for r in lost.scan()])
    reader = RunReader(TrackingPaths(tmp_path))
    reader.over = True
    files = [reader.write_file(done) for done in (0, 200, 400, 450)]
    assert [file and file[1] for file in files] == [200, 400, 450, None]
    found = a_store(record(2))
    assert restore([TrackingPaths(tmp_path).files / "records"], found) == Restored(449, 1, 0)
    assert sorted(lines(found)) == sorted(lines(lost))


def test_a_trial_keeps_its_record(tmp_path: Path) -> None:
    export_records(a_store(record(1)), tmp_path / "records.jsonl")
    kept = Record(record(1).trial, Measurement(Status.WRONG))
    store = a_store(kept)
    assert restore([tmp_path / "records.jsonl"], store) == Restored(0, 1, 0)
    assert list(store.scan()) == [kept]


def test_records_of_other_tasks_are_left_out(tmp_path: Path) -> None:
    export_records(a_store(record(1), record(2, "u")), tmp_path / "records.jsonl")
    store = a_store()
    assert restore([tmp_path / "records.jsonl"], store) == Restored(1, 0, 1)
    assert lines(store) == [record_line(record(1))]


def test_a_line_that_was_cut_short_is_left_out_at_the_end_only(tmp_path: Path) -> None:
    whole = record_line(record(1))
    file = tmp_path / "records.jsonl"
    file.write_text(f"{whole}\n{whole[:40]}")
    assert restore([file], a_store()) == Restored(1, 0, 0)
    file.write_text(f"{whole}\n{whole[:40]}\n{whole}\n")
    with pytest.raises(TunerError, match=r"records\.jsonl, line 2: not a record") as caught:
        restore([file], a_store())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("line", ["[]", "7", '"x"', '{"task": "t"}', "\0", "null"])
def test_what_is_no_record_is_one_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "records.jsonl").write_text(f"{line}\n")
    with pytest.raises(TunerError, match="line 1: not a record"):
        restore([tmp_path / "records.jsonl"], a_store())


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(TunerError, match=r"cannot read .*nosuch\.jsonl: No such file"):
        restore([tmp_path / "nosuch.jsonl"], a_store())
    with pytest.raises(TunerError, match=r"holds no \.jsonl files"):
        restore([tmp_path], a_store())


def test_a_run_that_has_not_begun_is_refused(tmp_path: Path) -> None:
    export_records(a_store(record(1)), tmp_path / "records.jsonl")
    with pytest.raises(TunerError, match="begin it with `tuner tune` first"):
        restore([tmp_path / "records.jsonl"], MemoryStore())
