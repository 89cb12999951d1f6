"""MLflow's database, which takes long to make: one for all tests of tracking."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tuner.tracking.mlflow_sink import quiet_environment, tracking_uri


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """URI of a SQLite store, in which each test uses an experiment of its own."""
    return tracking_uri(tmp_path_factory.mktemp("store"), "")


@pytest.fixture(scope="module")
def quiet_mlflow() -> Iterator[None]:
    """The environment that a tracker's process has."""
    old = dict(os.environ)
    os.environ.update(quiet_environment())
    yield
    os.environ.clear()
    os.environ.update(old)
