"""URIs of MLflow, and the environment that its clients need."""

from __future__ import annotations

import re
from pathlib import Path

from tuner.process.outcome import Outcome, Raised
from tuner.runs.folder import RunFolder

SQLITE = "sqlite:///"


def tracking_uri(run_dir: Path, uri: str) -> str:
    """The URI for MLflow; for an empty one, that of a SQLite file in the run folder."""
    return uri or f"{SQLITE}{RunFolder(run_dir.absolute()).mlflow_db}"


def is_plain_folder(uri: str) -> bool:
    """Whether a URI names a folder of files, in which MLflow keeps no runs any more."""
    named = "://" in uri or uri.partition(":")[0] in ("databricks", "databricks-uc")
    return bool(uri) and (not named or uri.startswith("file:"))


def lasting_uri(uri: str) -> str:
    """A URI that names the same in any working directory, as a run keeps it; empty, which is the
    run folder's own database, for one of a plain folder."""
    if is_plain_folder(uri):
        return ""
    file = sqlite_file(uri)
    if file is None or file.is_absolute() or str(file).startswith(":"):
        return uri
    return f"{SQLITE}{file.absolute()}"


def redact(text: str) -> str:
    """The text without the user names and passwords of the URIs in it. In those of databases
    SQLAlchemy takes passwords with slashes."""
    text = re.sub(r"(\w://)[^/@\s]*@", r"\1***@", text)
    return re.sub(r"\b((?!https?:)\w[\w+]*://)[^/:@\s]*:[^@\s]*@", r"\1***@", text)


def refusal(outcome: Outcome) -> str:
    """Why a child process gave no result, in one line without passwords."""
    text = redact(outcome.text if isinstance(outcome, Raised) else str(outcome))
    return " ".join(text.split())[:200]


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite URI; None for other URIs."""
    return Path(uri.removeprefix(SQLITE)) if uri.startswith(SQLITE) else None


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


def artifacts_of(uri: str) -> str | None:
    """The place of artifacts: next to a SQLite file; None leaves it to the server."""
    file = sqlite_file(uri)
    return None if file is None else (file.absolute().parent / "mlartifacts").as_uri()
