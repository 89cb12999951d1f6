"""What an export leaves out is said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import spaces.database
from cluster import results
from cluster.cli import run
from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Record, Status, Trial
from tuner.task import Task


def task(name: str) -> Task:
    return Task(name, name, "", "{}", 1.0, 0.0)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the tasks of a database, which is written nowhere; one open task is left."""
    candidate = Candidate(CandidateKind.TRACE, "[]", "default")
    record = Record(Trial("closed", candidate), Measurement(Status.OK, (1e-3,)))
    finished = SimpleNamespace(
        winners=((task("closed"), record),), sets=((task("open"), None),), lowered=None
    )
    monkeypatch.setattr(results, "_open", lambda folder: finished)
    names: list[str] = []

    def write(directory: Path, entries: Any, *, lowered: Any) -> None:
        names.extend(task.name for task, _, _ in entries)

    monkeypatch.setattr(spaces.database, "export_database", write)
    return names


def test_a_database_lacks_the_tasks_with_open_dimensions(
    written: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("cluster.commands.export.folder_of", lambda folder, *, model: folder)
    assert run(["export", str(tmp_path), "--database", str(tmp_path / "out")]) == 0
    assert written == ["closed"]
    wrote, left_out = capsys.readouterr().out.splitlines()
    assert wrote.startswith("wrote ")
    assert left_out.startswith("left out open: a database holds one schedule for a program")
