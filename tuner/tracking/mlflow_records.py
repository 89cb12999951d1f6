"""Fetches the records that a run's tracker kept in MLflow.

MLflow is used in a child process only, with a deadline: importing it takes seconds, and a server
may never answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuner.errors import TunerError
from tuner.process.ask_once import ask_once
from tuner.process.outcome import Returned
from tuner.tracking.entries import RECORDS
from tuner.tracking.mlflow_sink import connect
from tuner.tracking.mlflow_uris import quiet_environment, redact, refusal, sqlite_file

_START_S = 60.0
_DOWNLOAD_S = 1800.0
_PATIENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3", "MLFLOW_HTTP_REQUEST_TIMEOUT": "60"}


def fetch_records(uri: str, run_id: str, into: Path) -> Path:
    """Bring the files of a run's records here; return the folder that has them.

    Args:
        uri: MLflow's tracking URI.
        run_id: MLflow's id of the whole run, not of one of its tasks.
        into: an existing folder; the files go into a folder in it.

    Raises:
        TunerError: there is no such run, it has no records, or MLflow does not answer.
    """
    if (file := sqlite_file(uri)) is not None and not file.exists():
        raise TunerError(
            f"there is no MLflow database at {redact(uri)}: say with MLFLOW_TRACKING_URI which"
            " server or file has the run"
        )
    environment = {**quiet_environment(), **_PATIENT}
    outcome = ask_once(
        "tuner.tracking.mlflow_records:Artifacts",
        (uri,),
        "fetch",
        run_id,
        str(into),
        ready_s=_START_S,
        deadline_s=_DOWNLOAD_S,
        env=environment,
    )
    if not isinstance(outcome, Returned):
        raise TunerError(
            f"MLflow at {redact(uri)} does not give the run {run_id} ({refusal(outcome)})"
        )
    if outcome.value is None:
        raise TunerError(
            f"the MLflow run {run_id} has no {RECORDS}/ among its artifacts: it is that of one"
            " task, or not a tuner's"
        )
    return Path(outcome.value)


class Artifacts:
    """A connection to MLflow. Lives in a child process."""

    def __init__(self, uri: str) -> None:
        self._client: Any = connect(uri)

    def fetch(self, run_id: str, into: str) -> str | None:
        """Fetch the records; return their folder, or None where the run has none."""
        if not self._client.list_artifacts(run_id, RECORDS):
            return None
        return str(self._client.download_artifacts(run_id, RECORDS, into))
