"""`tuner top` on runs in folders: several at once, while others write, and whatever is broken."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cluster.app.cli import run
from cluster.app.commands.top import _END_S, _end
from cluster.app.driver.run_summaries import Looking, OneRun, RunsHere, find_runs, runs_at_work
from tests.cluster.in_a_pty import tuner_in_a_pty
from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Record, Status, Trial
from tuner.report.summary import RunSummary
from tuner.run_location import RunLocation
from tuner.runs.folder import Manifest, RunFolder
from tuner.runs.lock import RunLock
from tuner.storage.base import begin_session
from tuner.storage.facts import Defaults, Tasks
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task

_PATIENCE_S = 60.0
TASK = Task("key", "gemm", "{}", "{}", 1.0, 1e6)


def candidate(name: str) -> Candidate:
    return Candidate(CandidateKind.TRACE, name, "ours")


def record(name: str, seconds: float) -> Record:
    return Record(Trial(TASK.key, candidate(name)), Measurement(Status.OK, (seconds,)))


def a_run(folder: Path, *seconds: float) -> Path:
    """A run whose default schedule takes 4 ms, at work since just now."""
    folder.mkdir(parents=True)
    manifest = Manifest("m.onnx", "hash", "{}", {})
    (folder / "run.json").write_text(manifest.to_json())
    with closing(SqliteStore(folder / "records.sqlite")) as store:
        store.put(Tasks([TASK]), Defaults({TASK.key: candidate("default").key}))
        begin_session(store, time.time())
        store.append_many([(record("default", 0.004), None)])
        for n, s in enumerate(seconds):
            store.append_many([(record(f"c{n}", s), None)])
    return folder


Shown = Callable[..., dict[str, dict[str, Any]]]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    """The runs that `tuner top --once --json` shows, by name."""

    def top(*words: object, code: int = 0) -> dict[str, dict[str, Any]]:
        capsys.readouterr()
        assert run(["top", *map(str, words), "--once", "--json"]) == code
        return {row["run"]: row for row in json.loads(capsys.readouterr().out)["runs"]}

    return top


def test_two_runs_at_once(tmp_path: Path, shown: Shown) -> None:
    one, other = a_run(tmp_path / "one", 0.002), a_run(tmp_path / "other", 0.001, 0.003)
    rows = shown(one, other)
    assert [rows[str(r)]["gain"] for r in (one, other)] == pytest.approx([2.0, 4.0])
    assert [rows[str(r)]["trials"] for r in (one, other)] == [2, 3]
    assert {row["state"] for row in rows.values()} == {"at work"}


def test_without_a_terminal_it_is_shown_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = a_run(tmp_path / "one", 0.002)
    assert run(["top", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "2.00x" in out
    assert "\x1b" not in out
    assert out.splitlines()[-1].split()[:2] == ["gemm", "1"]


def test_a_folder_of_runs_stands_for_them(tmp_path: Path, shown: Shown) -> None:
    a_run(tmp_path / "runs" / "a")
    a_run(tmp_path / "runs" / "b")
    assert {Path(name).name for name in shown(tmp_path / "runs")} == {"a", "b"}


def test_what_cannot_be_read_is_a_line(tmp_path: Path, shown: Shown) -> None:
    good, broken, newer = (a_run(tmp_path / name) for name in ("good", "broken", "newer"))
    (broken / "records.sqlite").write_bytes(b"no database at all" * 100)
    with closing(SqliteStore(newer / "records.sqlite")) as store:
        store._db.execute("PRAGMA user_version = 99")
    empty = a_run(tmp_path / "empty")
    (empty / "records.sqlite").unlink()
    rows = shown(good, broken, newer, empty, tmp_path / "nix")
    assert rows[str(good)]["trials"] == 1
    assert "use another run folder" in rows[str(broken)]["state"]
    assert "schema version 99" in rows[str(newer)]["state"]
    assert rows[str(empty)]["state"] == "not begun"
    assert rows[str(tmp_path / "nix")]["state"].startswith("there is no run folder")
    shown(tmp_path / "nix", broken, code=1)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere", "there is no run folder nowhere"),
        ("afile", "afile is no run folder: it has no run.json"),
    ],
)
def test_where_no_run_can_be_read_that_is_an_error_which_names_it_once(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("afile").write_text("")
    assert run(["top", name, "--once"]) == 1
    assert capsys.readouterr() == ("", f"tuner: {said}\n")


def test_damaged_rows_are_a_line_too(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run", 0.001)
    with closing(SqliteStore(folder / "records.sqlite")) as store:
        store._db.execute("UPDATE candidate SET payload = x'00'")
    (seen,) = OneRun(RunLocation.of(folder))(0.0)
    assert not seen.readable
    assert seen.state.startswith("damaged: ")


def test_a_run_that_vanishes_becomes_a_line(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    (look,) = find_runs(RunLocation.of(folder))
    assert look(time.time())[0].readable
    shutil.rmtree(folder)
    (seen,) = look(time.time())
    assert (seen.readable, seen.state) == (False, f"there is no run folder {folder}")


def test_looking_leaves_a_run_as_it_is_and_takes_no_lock(tmp_path: Path, shown: Shown) -> None:
    folder = a_run(tmp_path / "run", 0.001)
    before = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.iterdir()}
    with RunLock(folder / "run.lock"):
        shown(folder)
    (folder / "run.lock").unlink()
    after = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.iterdir()}
    of_readers = ("records.sqlite-wal", "records.sqlite-shm")  # SQLite's own, and nothing in them
    assert after.pop(of_readers[0], (0, b""))[1] == b""
    assert {name: seen for name, seen in after.items() if name not in of_readers} == before


def test_without_arguments_all_that_work_here_and_lie_below(
    tmp_path: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = tmp_path / "here", a_run(tmp_path / "elsewhere" / "run")
    for name in ("own", "runs/first", "runs/unlike/cpu"):
        a_run(here / name)
    monkeypatch.chdir(here)
    with RunLock(RunFolder(elsewhere).lock):
        assert elsewhere in runs_at_work()
        found = RunsHere(Path(), lambda: [elsewhere, here / "own"])(time.time())
    names = {summary.name for summary in found}
    assert names == {str(elsewhere), "own", "runs/first", "runs/unlike/cpu"}
    assert elsewhere not in runs_at_work()
    assert names - {str(elsewhere)} <= set(shown())


def test_who_looks_in_vain_says_so_and_looks_on() -> None:
    calls, mended, seen_again = count(), threading.Event(), threading.Event()

    def source(now_s: float) -> list[RunSummary]:
        number = next(calls)
        if number == 0:
            raise ZeroDivisionError("a defect")
        assert mended.wait(_PATIENCE_S)
        if number > 1:  # what it saw when it was called before is shown
            seen_again.set()
        return [RunSummary(name="x", state="at work")]

    looking = Looking(source, "x", every_s=0.01)
    looking.wait(_PATIENCE_S)
    assert "a defect" in looking.last()[0].state
    mended.set()
    assert seen_again.wait(_PATIENCE_S)
    assert looking.last()[0].state == "at work"
    looking.stop()
    looking.join(_PATIENCE_S)


def test_those_who_look_are_stopped_at_once_and_waited_for_together() -> None:
    calls: list[tuple[str, float]] = []

    class Stuck(Looking):
        def __init__(self) -> None:
            """Begin nothing."""

        def stop(self) -> None:
            calls.append(("stop", 0.0))

        def join(self, timeout_s: float) -> None:
            calls.append(("join", timeout_s))

    _end([Stuck() for _ in range(20)])
    assert [name for name, _ in calls] == ["stop"] * 20 + ["join"] * 20
    waits_s = [timeout_s for name, timeout_s in calls if name == "join"]
    assert waits_s == sorted(waits_s, reverse=True), "all until one deadline"
    assert waits_s[0] <= _END_S


@pytest.mark.parametrize("words", [["runs/x", "--address", "127.0.0.1:1"], ["--address", "local"]])
def test_what_makes_no_sense_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["top", *words]) == 2
    assert "--address" in capsys.readouterr().err


def test_on_a_terminal_it_follows_runs_until_a_key_is_pressed(tmp_path: Path) -> None:
    one, other = a_run(tmp_path / "one"), a_run(tmp_path / "other")
    with (
        closing(SqliteStore(one / "records.sqlite")) as store,
        tuner_in_a_pty("top", "one", "other", cwd=tmp_path, env=path_of_ours()) as terminal,
    ):
        terminal.until(r"one +at work.* 1\.00x")
        assert not terminal.echoes()
        store.append_many([(record("fast", 0.0005), None)])
        terminal.until(r"one +at work.* 8\.00x")
        shutil.rmtree(other)
        terminal.until(r"(?m)^there is no run folder other")
        terminal.press(b"xyq")
        assert terminal.end() == 0
        assert terminal.echoes()
    assert "Traceback" not in terminal.text


def test_one_that_is_ended_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    a_run(tmp_path / "one")
    with tuner_in_a_pty("top", "one", cwd=tmp_path, env=path_of_ours()) as terminal:
        terminal.until("one +at work")
        assert not terminal.echoes()
        terminal.process.terminate()
        assert terminal.end() == 143
        assert terminal.echoes()


def path_of_ours() -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[4])
    return {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
