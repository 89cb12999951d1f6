"""How MLflow is reached: URIs, its environment, and clients of it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tuner.process.outcome import Outcome, Raised
from tuner.runs.folder import RunFolder

_SQLITE = "sqlite:///"


def tracking_uri(run_dir: Path, uri: str) -> str:
    """The URI for MLflow; for an empty one, that of a SQLite file in the run folder."""
    return uri or f"{_SQLITE}{RunFolder(run_dir.absolute()).mlflow_db}"


def redacted(text: str) -> str:
    """The text without the user names and passwords of the URIs in it. In those of databases
    SQLAlchemy takes passwords with slashes."""
    text = re.sub(r"(\w://)[^/@\s]*@", r"\1***@", text)
    return re.sub(r"\b((?!https?:)\w[\w+]*://)[^/:@\s]*:[^@\s]*@", r"\1***@", text)


def refusal(outcome: Outcome) -> str:
    """Why a child process gave no result, in one line without passwords."""
    text = redacted(outcome.text if isinstance(outcome, Raised) else str(outcome))
    return " ".join(text.split())[:200]


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite URI; None for other URIs."""
    return Path(uri.removeprefix(_SQLITE)) if uri.startswith(_SQLITE) else None


def quiet_environment() -> dict[str, str]:
    """Environment variables that must be set before MLflow is imported in a tracker.

    They turn off usage statistics, MLflow's own retries, which would block for minutes, and its
    thread that takes metrics and loses them.
    """
    return {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
        "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "GIT_PYTHON_REFRESH": "quiet",
    }


def connect(uri: str) -> Any:
    """A client of MLflow's tracking and model registry at a URI. Expects `quiet_environment`."""
    if (file := sqlite_file(uri)) is not None and not file.exists():
        _make_database(file)
    return _client(uri)


def _client(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def _make_database(file: Path) -> None:
    """Make a database that is whole, or not there.

    MLflow writes its tables in tens of steps. A file whose making was cut off between two of them
    cannot be opened any more, and a tracker may be killed at any moment.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    begun = f"{file.name}.part-"
    for other in file.parent.glob(f"{begun}*"):
        if not psutil.pid_exists(int(other.name.removeprefix(begun).partition("-")[0])):
            other.unlink(missing_ok=True)
    part = file.with_name(f"{begun}{os.getpid()}")
    try:
        _client(f"{_SQLITE}{part}").search_experiments(max_results=1)
        with suppress(FileExistsError):  # another process was faster
            os.link(part, file)
    finally:
        for left in file.parent.glob(f"{part.name}*"):
            left.unlink(missing_ok=True)


def artifacts_of(uri: str) -> str | None:
    """The place of artifacts: next to a SQLite file; None leaves it to the server."""
    file = sqlite_file(uri)
    return None if file is None else (file.absolute().parent / "mlartifacts").as_uri()
