"""A database of MLflow's is whole, or not there."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tuner.tracking import mlflow_sink
from tuner.tracking.mlflow_sink import connect
from tuner.tracking.mlflow_uris import sqlite_file


def test_one_that_was_not_finished_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(uri: str) -> Any:
        file = sqlite_file(uri)
        assert file is not None
        file.write_bytes(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(mlflow_sink, "_client", die)
    with pytest.raises(KeyboardInterrupt):
        connect(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert [*tmp_path.iterdir()] == []


def test_what_a_killed_process_left_is_removed_and_what_another_made_is_kept(
    tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mlflow.db.part-999999999").write_bytes(b"half of it")
    file, right = tmp_path / "mlflow.db", mlflow_sink._client

    def be_late(uri: str) -> Any:
        shutil.copy(empty_database, tmp_path / "mlflow.db")
        with closing(sqlite3.connect(file)) as known, known:
            known.execute("UPDATE experiments SET name = 'another'")
        shutil.copy(empty_database, sqlite_file(uri) or "")
        monkeypatch.setattr(mlflow_sink, "_client", right)
        return right(uri)

    monkeypatch.setattr(mlflow_sink, "_client", be_late)
    (found,) = connect(f"sqlite:///{file}").search_experiments()
    assert found.name == "another"
    assert [*tmp_path.glob("*.part*")] == []
