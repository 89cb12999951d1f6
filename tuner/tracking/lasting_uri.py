"""The URI of MLflow as a run keeps it: it may be read from another working directory."""

from __future__ import annotations

from tuner.tracking.mlflow_client import sqlite_file


def is_plain_folder(uri: str) -> bool:
    """Whether a URI names a folder of files, in which MLflow keeps no runs any more."""
    named = "://" in uri or uri.partition(":")[0] in ("databricks", "databricks-uc")
    return bool(uri) and (not named or uri.startswith("file:"))


def lasting_uri(uri: str) -> str:
    """A URI that names the same in any working directory; empty, which is the run folder's own
    database, for one of a plain folder."""
    if is_plain_folder(uri):
        return ""
    file = sqlite_file(uri)
    if file is None or file.is_absolute() or str(file).startswith(":"):
        return uri
    return f"sqlite:///{file.absolute()}"
