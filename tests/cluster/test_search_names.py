"""What the search of a run is called: by its folder, or the same everywhere by its URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.search_names import search_name


def test_the_same_folder_has_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert search_name(Path("runs/a")) == search_name(tmp_path / "runs" / "b" / ".." / "a")


def test_the_same_url_has_one_name() -> None:
    assert search_name("s3://bucket/a") == search_name("s3://bucket/a/")
    names = {search_name(run) for run in ("s3://bucket/a", "s3://bucket/b", Path("s3://bucket/a"))}
    assert len(names) == 3
