"""Two runs beside each other: what is faster or slower beyond the noise, and what changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster.app.cli import run as command
from tuner.candidate import Candidate, CandidateKind, of_knobs
from tuner.record import Measurement, Provenance, Record, Status, Trial
from tuner.report.diff import describe_changes, diff
from tuner.run_location import RunLocation
from tuner.runs.folder import Manifest, open_run
from tuner.runs.remote import open_store
from tuner.storage.base import RecordStore, begin_session
from tuner.storage.facts import SessionEnded, Tasks
from tuner.storage.sqlite_store import MemoryStore, SqliteStore
from tuner.task import Task

DESK = Provenance("runner-1", "a desk", "tvm 1")
OLD, NEW = (of_knobs({"rows": n, "lanes": 8}, f"kernel:product@{n}") for n in (4, 6))


def fill(
    store: RecordStore,
    times: dict[str, tuple[Candidate, Sequence[float]]],
    provenance: Provenance = DESK,
) -> RecordStore:
    """Keep winners, each timed once by the search and then again."""
    tasks = [Task(name, name, f"module of {name}", "{}", weight=2.0) for name in times]
    store.put(Tasks(tasks))
    for name, (candidate, seconds) in times.items():
        for rung, latency_s in enumerate(seconds):
            measured = Measurement(Status.OK, (latency_s,) * 3)
            store.append_many(
                [(Record(Trial(name, candidate, (), rung), measured, provenance), None)]
            )
    return store


def kept(times: dict[str, tuple[Candidate, Sequence[float]]]) -> RecordStore:
    return fill(MemoryStore(), times)


def test_what_is_faster_or_slower_by_more_than_noise_is_told_apart_from_what_is_not() -> None:
    steady = (1.0, 1.0, 1.01, 0.99)
    before = kept({"a": (OLD, steady), "b": (OLD, steady), "c": (OLD, steady)})
    after = kept(
        {
            "a": (NEW, [s / 2 for s in steady]),
            "b": (NEW, [s * 1.3 for s in steady]),
            "c": (OLD, [s * 1.02 for s in steady]),
        }
    )
    found = diff(before, after)
    assert [task.verdict for task in found.tasks] == ["better", "worse", "same"]
    assert found.sums_s is not None
    assert found.sums_s[0] == pytest.approx(6.0, rel=0.02)
    assert found.sums_s[1] < found.sums_s[0]
    assert found.notes == ()


def test_noisy_runs_say_less() -> None:
    noisy = (1.0, 1.0, 1.3, 0.8, 1.25, 0.85)
    found = diff(kept({"a": (OLD, noisy)}), kept({"a": (OLD, [s * 1.3 for s in noisy])}))
    assert found.noise > 1.3
    assert [task.verdict for task in found.tasks] == ["same"]


def test_a_run_beside_itself_has_no_difference() -> None:
    store = kept({"a": (OLD, (1.0, 1.2, 0.9))})
    found = diff(store, store)
    assert [(task.verdict, task.changes) for task in found.tasks] == [("same", ())]


def test_tasks_that_only_one_run_has_are_named_and_not_added_up() -> None:
    found = diff(kept({"a": (OLD, (1.0,)), "x": (OLD, (9.0,))}), kept({"a": (OLD, (1.0,))}))
    assert [(row.task.name, row.verdict) for row in found.tasks] == [("a", "same"), ("x", "gone")]
    assert found.sums_s == (2.0, 2.0)


def test_a_task_without_a_time_in_one_run_is_neither_new_nor_gone() -> None:
    none: dict[str, tuple[Candidate, Sequence[float]]] = {"a": (OLD, ())}
    timed = kept({"a": (OLD, (1.0,))})
    for pair in ((kept(none), timed), (timed, kept(none))):
        found = diff(*pair)
        assert [task.verdict for task in found.tasks] == ["untimed"]
        assert found.sums_s is None


def test_other_devices_and_toolchains_are_said() -> None:
    other = Provenance("runner-1", "a board", "tvm 2")
    found = diff(
        kept({"a": (OLD, (1.0,))}), fill(MemoryStore(), {"a": (OLD, (1.0,))}, provenance=other)
    )
    assert found.notes == ("measured on a desk, and a board", "compiled with tvm 1, and tvm 2")


def trace(*decisions: tuple[int, list[int]], length: int = 3) -> Candidate:
    instructions = [["SamplePerfectTile", [], [], []] for _ in range(length)]
    payload = json.dumps([instructions, [[at, drawn] for at, drawn in decisions]])
    return Candidate(CandidateKind.TRACE, payload, "rules:cpu")


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        (OLD, OLD, []),
        (OLD, NEW, ["another version", "rows 4 → 6"]),
        (OLD, trace(), ["space kernel:product → rules:cpu"]),
        (trace((0, [2, 4])), trace((0, [4, 2])), ["SamplePerfectTile [2, 4] → [4, 2]"]),
        (trace(), trace(length=5), ["another sketch: 3 → 5 instructions"]),
    ],
)
def test_what_changed_in_a_schedule_is_said(
    was: Candidate, now: Candidate, said: list[str]
) -> None:
    assert list(describe_changes(was, now)) == said


def test_the_command_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, latency_s, candidate in (("a", 2e-3, OLD), ("b", 1e-3, NEW)):
        folder, _ = open_run(tmp_path / name, Manifest("m.onnx", "hash", '{"kind":"llvm"}'))
        store = open_store(RunLocation.of(folder.root), folder)
        session = begin_session(store, 1.0)
        fill(store, {"dense": (candidate, (latency_s, latency_s))})
        store.put(SessionEnded(session, 2.0, "trials"))
        store.close()
    assert command(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    out = capsys.readouterr().out
    assert "better" in out
    assert "dense: another version; rows 4 → 6" in out
    assert "4.00 ms → 2.00 ms, 2.00x" in out
    assert command(["diff", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["before_ms"], told["after_ms"]) == (4.0, 2.0)
    assert (told["tasks"][0]["verdict"], told["tasks"][0]["before_ms"]) == ("better", 2.0)
    assert command(["diff", str(tmp_path / "a"), str(tmp_path / "nowhere")]) == 1
    capsys.readouterr()
    open_run(tmp_path / "new", Manifest("m.onnx", "hash", '{"kind":"llvm"}'))
    fill(SqliteStore(tmp_path / "new" / "records.sqlite"), {"dense": (OLD, ())})
    assert command(["diff", str(tmp_path / "new"), str(tmp_path / "a")]) == 0
    assert "no task has a time in both" in capsys.readouterr().out
