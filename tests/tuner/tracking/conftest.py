"""MLflow's database, which takes long to make: one for all tests of tracking, and one to copy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tuner.tracking.mlflow_sink import connect
from tuner.tracking.mlflow_uris import quiet_environment, tracking_uri


@contextmanager
def _quiet() -> Iterator[None]:
    old = dict(os.environ)
    os.environ.update(quiet_environment())
    yield
    os.environ.clear()
    os.environ.update(old)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite store that MLflow made and nobody used."""
    file = tmp_path_factory.mktemp("empty") / "mlflow.db"
    with _quiet():
        connect(f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture(scope="session")
def database(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """URI of a SQLite store, in which each test uses an experiment of its own."""
    folder = tmp_path_factory.mktemp("store")
    shutil.copy(empty_database, folder)
    return tracking_uri(folder, "")


@pytest.fixture(scope="module")
def quiet_mlflow() -> Iterator[None]:
    """The environment that a tracker's process has."""
    with _quiet():
        yield
