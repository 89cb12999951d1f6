"""A run whose times were taken with several toolchains is marked wherever its times are shown."""

from __future__ import annotations

import json
import sqlite3
import sys
import types
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cluster.app.cli import run
from cluster.app.console.closing_text import explain_toolchains
from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Provenance, Record, Status, Trial
from tuner.runs.folder import Manifest
from tuner.storage.facts import Tasks
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task
from tuner.view.run_view import RunView, ToolchainView
from tuner.view.task_view import TaskView

OLD = "tvm=0.27.0.post1 ffi=0.1.14.post1 llvm=22 passes=1"
NEW = "tvm=0.27.0.post1 ffi=0.1.14.post1 llvm=22 passes=2"


CONV, DENSE = Task("c", "conv", "{}", "{}", 1.0, 1.0), Task("d", "dense", "{}", "{}", 1.0, 1.0)


def record(task: Task, name: str, seconds: float, toolchain: str, rung: int = 0) -> Record:
    trial = Trial(task.key, Candidate(CandidateKind.TRACE, name, "ours"), rung=rung)
    good = Measurement(Status.OK, (seconds,))
    return Record(trial, good, Provenance("w", "d", toolchain))


@pytest.fixture
def pure(tmp_path: Path) -> Path:
    """A run of one toolchain."""
    (tmp_path / "run.json").write_text(Manifest("m.onnx", "hash", "{}", {}).to_json())
    with closing(SqliteStore(tmp_path / "records.sqlite")) as store:
        store.put(Tasks([CONV, DENSE]))
        store.append_many([(record(task, "a", 1.0, OLD), None) for task in (CONV, DENSE)])
    return tmp_path


@pytest.fixture
def mixed(pure: Path) -> Path:
    """The same, gone on with another; what was found before was timed again."""
    with closing(SqliteStore(pure / "records.sqlite")) as store:
        store.append_many([(record(DENSE, "b", 0.5, NEW), None)])
        store.append_many([(record(CONV, "a", 1.1, NEW, rung=1001), None)])
    return pure


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert run([str(word) for word in words]) == 0
    return capsys.readouterr().out


MARK = "times of 2 toolchains, which cannot be compared"


def test_by_status(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{MARK}; the best of conv has its time from an older one (now {NEW})" in said(
        capsys, "status", mixed
    )
    rows = json.loads(said(capsys, "status", mixed, "--json"))["toolchains"]
    assert [(row["toolchain"], row["won"]) for row in rows] == [(OLD, ["conv"]), (NEW, ["dense"])]


def test_one_toolchain_is_no_news(pure: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "toolchain" not in said(capsys, "status", pure)


def test_by_best_where_a_re_timing_makes_it_one_of_the_newest(
    mixed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cluster.app.driver.best_schedules import BestSchedule
    from tuner.view.folds import view_winners

    def without_traces(store: Any, *_: object) -> list[BestSchedule]:
        return [BestSchedule(task, None, None) for task in view_winners(store)]

    monkeypatch.setattr("cluster.app.driver.best_schedules.best_schedules", without_traces)
    assert f"{MARK}; all winners have theirs from the newest (now {NEW})" in said(
        capsys, "best", mixed
    )


@pytest.mark.parametrize(("here", "marked"), [(NEW, False), ("tvm=0.28", True)])
def test_by_export_where_the_library_is_compiled_with_another(
    here: str,
    marked: bool,
    mixed: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler, exported = types.ModuleType("compiler"), types.ModuleType("exported")
    compiler.toolchain_fingerprint = lambda target: here  # type: ignore[attr-defined]
    exported.ExternalSymbols = KeyError  # type: ignore[attr-defined]
    exported.export_library = lambda run, out, **_: out.touch() or {}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "spaces.passes.toolchain", compiler)
    monkeypatch.setitem(sys.modules, "cluster.app.driver.export", exported)
    out = said(capsys, "export", mixed, "--lib", mixed / "model.so")
    assert (f"timed with {NEW}, and are compiled with tvm=0.28" in out) == marked


def test_a_newer_store_is_refused_in_one_line_that_says_what_to_do(
    mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(mixed / "records.sqlite")) as database:
        database.execute("PRAGMA user_version = 9")
    for command in (["status"], ["best"], ["diff", str(mixed)]):
        assert run([*command, str(mixed)]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert "has schema version 9 of another tuner, this one reads version 2: use the" in line


def test_the_words() -> None:
    tasks = tuple(
        TaskView(name, name, toolchain=used) for name, used in zip("abc", "vwx", strict=True)
    )
    used = tuple(ToolchainView(name, 1, ()) for name in "vwx")
    assert explain_toolchains(RunView(tasks=tasks, toolchains=used)) == (
        "times of 3 toolchains, which cannot be compared; the best of a, b has its time from an "
        "older one (now x)"
    )
