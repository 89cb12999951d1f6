"""How to open MLflow's page on a run."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from tuner.run_folder import RunFolder


def mlflow_command(run: Path, tracking_uri: str | None, *, python: str = sys.executable) -> str:
    """A command that opens MLflow on a run, for a shell in the current folder.

    Args:
        run: the run folder.
        tracking_uri: of the server the run went to; None is the run folder's own database.
        python: the interpreter that has MLflow.
    """
    if tracking_uri and tracking_uri.startswith(("http://", "https://")):
        # The server has a page of its own; what may be a password in its address stays out.
        scheme, _, rest = tracking_uri.partition("://")
        return f"open {scheme}://{rest.rpartition('@')[2]}"
    store = tracking_uri or f"sqlite:///{_near(RunFolder(run).mlflow_db)}"
    return (
        f"{shlex.quote(_near(Path(python)))} -m mlflow ui --backend-store-uri {shlex.quote(store)}"
    )


def _near(path: Path) -> str:
    """The path as seen from the current folder where it lies below it, else in full.

    Symbolic links stay, since a virtual environment's interpreter is one.
    """
    here, full = Path.cwd(), Path(os.path.abspath(path))
    return str(full.relative_to(here) if full.is_relative_to(here) else full)
