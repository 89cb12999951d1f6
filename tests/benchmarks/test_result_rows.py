"""Rows of a result that outlive a run that breaks off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import command
from benchmarks.command import Rows, fresh, workplace
from tuner.errors import TunerError


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "about", lambda: {"device": "a cpu"})


def test_rows_are_on_disk_as_soon_as_they_are_there(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    rows = Rows(out, {"trials": 8})
    rows.add({"shape": "a", "ratio": 1.0})
    assert json.loads(out.read_text())["rows"] == [{"shape": "a", "ratio": 1.0}]


def test_a_second_call_goes_on_where_the_first_one_was(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    Rows(out, {"trials": 8}).add({"shape": "a"})
    again = Rows(out, {"trials": 8})
    assert again.has({"shape": "a"})
    assert not again.has({"shape": "b"})
    again.add({"shape": "b"})
    document = again.finish({"rows": 2})
    assert document == json.loads(out.read_text())
    assert [row["shape"] for row in document["rows"]] == ["a", "b"]


def test_rows_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    Rows(out, {"trials": 8}).add({"shape": "a"})
    with pytest.raises(TunerError, match="other settings"):
        Rows(out, {"trials": 9})


@pytest.mark.parametrize("text", ["", "[]", "{}", "{"])
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    out = tmp_path / "out.json"
    out.write_text(text)
    with pytest.raises(TunerError, match="no result of this benchmark"):
        Rows(out, {})


def test_without_a_file_nothing_is_written(tmp_path: Path) -> None:
    rows = Rows(None, {})
    rows.add({"a": 1})
    assert rows.finish({})["rows"] == [{"a": 1}]
    assert not list(tmp_path.iterdir())


def test_a_folder_is_kept_only_where_it_is_asked_for(tmp_path: Path) -> None:
    with workplace(None) as scratch:
        assert scratch.is_dir()
    assert not scratch.exists()
    with workplace(tmp_path / "kept") as kept:
        (kept / "gemm").mkdir()
        assert fresh(kept, "gemm").name == "gemm-2"
        assert fresh(kept, "conv").name == "conv"
    assert kept.is_dir()
