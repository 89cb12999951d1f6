"""Files of a user's in the current folder do not stand for Python's own modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.process.child import Child
from tuner.process.outcome import Returned
from tuner.search_path import ROOT, current_folder_last

NAMES = ("random", "queue", "types", "json", "selectors", "numpy")


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with modules that end who imports them, and one that is worth it."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')\n")
    (tmp_path / "neighbour.py").write_text("def word(): return 'found'\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("entry", ["", "{here}", "{here}/sub/.."])
def test_the_current_folder_comes_last(theirs: Path, entry: str) -> None:
    (theirs / "sub").mkdir()
    path = [entry.format(here=theirs), "/a", "/b"]
    assert current_folder_last(path) == ["/a", "/b", str(theirs.resolve())]


def test_a_path_without_it_stays_as_it_is(theirs: Path) -> None:
    assert current_folder_last(["/b", "/a"]) == ["/b", "/a"]


def test_our_own_folder_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert current_folder_last(["", "/a"]) == ["", "/a"]


def test_a_current_folder_that_is_gone_is_no_trouble(theirs: Path) -> None:
    for file in theirs.iterdir():
        file.unlink()
    theirs.rmdir()
    assert current_folder_last(["/a"]) == ["/a"]


def test_a_child_has_pythons_modules_and_still_finds_others(
    theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    child = Child("neighbour:word")
    try:
        assert isinstance(child.ready(60.0), Returned)
    finally:
        child.close()


def test_a_command_in_such_a_folder_starts(theirs: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tuner", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    assert done.stdout.startswith("tuner"), done.stderr
