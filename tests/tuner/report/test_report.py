"""What a store tells people."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from tuner.report.report import best_report, export_records, status_report
from tuner.report.spaces import fruitless
from tuner.session.progress import fold
from tuner.storage.memory import MemoryStore
from tuner.task import SpaceSource, Task


def candidate(n: int) -> Candidate:
    return Candidate(CandidateKind.TRACE, f"[{n}]", "space")


DEFAULT = 0
MATMUL = Task("m", "matmul", "", "", weight=3.0, flops=2e9)
SOFTMAX = Task("s", "softmax", "", "")


def record(
    n: int, *seconds: float, rung: int = 0, status: Status = Status.OK, task: str = "m"
) -> Record:
    return Record(Trial(task, candidate(n), rung=rung), Measurement(status, seconds))


def store_of(*records: Record) -> MemoryStore:
    store = MemoryStore()
    store.put_tasks([MATMUL, SOFTMAX], {"m": candidate(DEFAULT).key})
    store.append_many([(r, None) for r in records])
    return store


class TestStatus:
    def test_an_empty_run(self) -> None:
        assert status_report(MemoryStore()) == {
            "trials": 0,
            "ok": 0,
            "censored": 0,
            "failures": {},
            "elapsed_s": 0.0,
            "trials_per_s": 0.0,
            "settled": False,
            "utilisation": {},
            "tasks": [],
            "spaces": [],
            "toolchains": [],
        }

    def test_a_run_under_way(self) -> None:
        store = store_of(
            record(DEFAULT, 0.004),
            record(1, 0.001, 0.002, 0.009),
            record(2, status=Status.WRONG),
            record(3, status=Status.INVALID),
            record(4, 0.1, status=Status.CENSORED),
            record(1, 0.0015, rung=1),
            record(1, task="s", status=Status.LOST),
        )
        store.put_sizes({"m": {"space": 90}})
        for ends_s in (1.0, 1.0):
            session = store.begin_session(0.0)
            store.heartbeat(session, 0.5, {"runner": {"busy": 1.5, "no_builds": 0.5}})
            store.end_session(session, ends_s, "")
        store.begin_session(1.0)
        matmul = {
            "name": "matmul",
            "key": "m",
            "weight": 3.0,
            "trials": 4,
            "ok": 2,
            "censored": 1,
            "failures": {"invalid": 1, "wrong": 1},
            "default_ms": 4.0,
            "best_ms": 2.0,
            "gflops": 1000.0,
        }
        softmax = {
            "name": "softmax",
            "key": "s",
            "weight": 1.0,
            "trials": 1,
            "ok": 0,
            "censored": 0,
            "failures": {"lost": 1},
            "default_ms": None,
            "best_ms": None,
            "gflops": None,
        }
        assert status_report(store) == {
            "trials": 5,
            "ok": 2,
            "censored": 1,
            "failures": {"invalid": 1, "wrong": 1, "lost": 1},
            "elapsed_s": 2.0,
            "trials_per_s": 2.5,
            "settled": False,
            "utilisation": {"runner": {"busy": 3.0, "no_builds": 1.0}},
            "tasks": [matmul, softmax],
            "spaces": [
                {
                    "space": "space",
                    "points": 90,
                    "explored": 6,
                    "trials": 5,
                    "failed": 3,
                    "won": ["matmul"],
                    "best_ms": 2.0,
                }
            ],
            "toolchains": [],
        }

    def test_a_run_that_has_ended_has_the_times_of_the_best_report(self) -> None:
        store = store_of(
            record(DEFAULT, 0.004),
            record(DEFAULT, 0.005, rung=1),
            record(1, 0.001),
            record(1, 0.003, rung=1),
            record(2, 0.002),
            record(2, 0.0025, rung=1),
            record(1, 0.008, task="s"),
        )
        session = store.begin_session(0.0)
        assert [row["best_ms"] for row in status_report(store)["tasks"]] == [1.0, 8.0]
        store.end_session(session, 1.0, "trials")
        status, best = status_report(store), best_report(store)
        assert status["settled"]
        told = [(row["default_ms"], row["best_ms"], row["gflops"]) for row in status["tasks"]]
        assert told == [(r["default_ms"], r["latency_ms"], r["gflops"]) for r in best["tasks"]]
        assert told[0][:2] == (5.0, 2.5)


class TestFruitless:
    """Declared spaces that gave no time are told once, with why."""

    SOURCE = SpaceSource("theirs.py", "", "SPACE", parts=("works", "fails", "missing"))
    TASKS = (replace(MATMUL, space=SOURCE), SOFTMAX)

    def of(self, part: str, n: int, *seconds: float, status: Status, error: str = "") -> Record:
        space = self.SOURCE.space_name(part)
        known = Candidate(CandidateKind.TRACE, f"[{n}]", space)
        return Record(Trial("m", known), Measurement(status, seconds, error=error))

    def test_each_has_a_line(self) -> None:
        store = store_of(
            self.of("works", 1, 0.5, status=Status.OK),
            self.of("works", 2, status=Status.WRONG, error="off by 3"),
            self.of("fails", 3, status=Status.BUILD_FAILED, error="no such intrinsic"),
            self.of("fails", 4, status=Status.WRONG, error="off by 7"),
        )
        assert fruitless(store, self.TASKS) == [
            "fails: all 2 candidates failed: build failed, no such intrinsic",
            "missing: none of its drafts could be scheduled, or none was reached",
        ]

    def test_without_a_declared_space_nothing_is_said(self) -> None:
        assert fruitless(store_of(), (MATMUL, SOFTMAX)) == []


class TestBest:
    def test_the_last_retiming_is_shown(self) -> None:
        store = store_of(
            record(DEFAULT, 0.008),
            record(DEFAULT, 0.005, rung=1),
            record(DEFAULT, 0.006, 0.006, 0.007, rung=2),
            record(1, 0.001),
            record(1, 0.003, rung=1),
            record(1, 0.001, 0.002, 0.009, rung=2),
        )
        assert best_report(store)["tasks"] == [
            {
                "name": "matmul",
                "weight": 3.0,
                "trials": 2,
                "default_ms": 6.0,
                "latency_ms": 2.0,
                "gflops": 1000.0,
                "candidate": candidate(1).key,
                "space": "space",
                "toolchain": None,
            },
            {
                "name": "softmax",
                "weight": 1.0,
                "trials": 0,
                "default_ms": None,
                "latency_ms": None,
                "gflops": None,
                "candidate": None,
                "space": None,
                "toolchain": None,
            },
        ]

    def test_of_a_task_with_many_shapes_it_is_what_its_kernels_take(self) -> None:
        """Where they were chosen; else the mean over all shapes, each with its best kernel."""
        small, large = (("n", 1),), (("n", 9),)
        task = Task("o", "symbolic", "", "", flops=2e9, shapes=((small, 3.0), (large, 1.0)))
        store = MemoryStore()
        store.put_tasks([task], {})
        for number, instance, seconds in ((1, small, 0.001), (2, large, 0.005)):
            trial = Trial("o", candidate(number), instance)
            store.append(Record(trial, Measurement(Status.OK, (seconds,))))
        (row,) = best_report(store)["tasks"]
        assert (row["latency_ms"], row["gflops"]) == (pytest.approx(2.0), pytest.approx(1000.0))
        (row,) = best_report(store, None, {"o": 0.004})["tasks"]
        assert (row["latency_ms"], row["gflops"]) == (4.0, 500.0)
        (told,) = status_report(store, {"o": 0.004})["tasks"]
        assert (told["best_ms"], told["gflops"]) == (4.0, 500.0)

    def test_one_task_by_name_or_key(self) -> None:
        for wanted in ("softmax", "s"):
            (row,) = best_report(store_of(), wanted)["tasks"]
            assert row["name"] == "softmax"
        with pytest.raises(TunerError, match="no task conv"):
            best_report(store_of(), "conv")


class TestExport:
    def test_a_line_for_each_record_in_order(self, tmp_path: Path) -> None:
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

    def test_lines_are_strict_json(self) -> None:
        def refuse(constant: str) -> None:
            raise AssertionError(constant)

        line = record_line(record(1, math.nan, math.inf, 1.0))
        assert json.loads(line, parse_constant=refuse)["seconds"] == ["nan", "inf", 1.0]
        assert repr(record_from_json(line).measurement.samples_s) == "(nan, inf, 1.0)"

    def test_an_error_leaves_the_old_file_and_nothing_else(self, tmp_path: Path) -> None:
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

    def test_a_pipe_or_a_device_is_not_replaced_by_a_file(self, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        with pytest.raises(TunerError, match="Not a regular file"):
            export_records(store_of(), pipe)
        assert pipe.is_fifo()

    def test_an_unwritable_place_is_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for place in (tmp_path / "file" / "records.jsonl", tmp_path):
            with pytest.raises(TunerError, match="cannot write") as caught:
                export_records(store_of(), place)
            assert "\n" not in str(caught.value)


plausible = st.floats(1e-9, 1e6)
nonsense = st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 0.0])
runs = st.lists(
    st.builds(
        lambda n, seconds, **rest: record(n, *seconds, **rest),
        st.integers(0, 5),
        st.lists(plausible | nonsense, max_size=3),
        rung=st.integers(0, 3),
        status=st.sampled_from(Status),
        task=st.sampled_from("ms"),
    )
)


@given(runs)
def test_reports_agree_with_progress_and_are_strict_json(records: list[Record]) -> None:
    store = store_of(*records)
    status = status_report(store)
    json.dumps(status, allow_nan=False)
    json.dumps(best_report(store), allow_nan=False)
    progress = fold(store.tasks(), store.defaults(), store.scan())
    assert status["trials"] == sum(p.spent for p in progress.values())
    for row, p in zip(status["tasks"], progress.values(), strict=True):
        assert (row["trials"], sum(row["failures"].values())) == (p.spent, p.failures)
        assert row["best_ms"] == (None if p.best_s is None else p.best_s * 1e3)
        assert row["default_ms"] == (None if p.default_s is None else p.default_s * 1e3)
