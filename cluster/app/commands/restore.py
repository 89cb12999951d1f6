"""`tuner restore DIR`: records of a lost run, brought back from files or from MLflow."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cluster.app.commands.runs import folder_of
from cluster.app.console.flags import PATH, TEXT, debug_flag, run_argument
from tuner.errors import UsageError
from tuner.run_location import RunLocation

if TYPE_CHECKING:
    from tuner.storage.restore import Restored


@click.command(short_help="Bring records back from files or MLflow.")
@run_argument
@click.argument("files", metavar="[FILE.jsonl...]", nargs=-1, type=PATH)
@click.option(
    "--mlflow",
    "run_id",
    metavar="RUN_ID",
    type=TEXT,
    help="Fetch the records that this run has in MLflow, where MLFLOW_TRACKING_URI says or else"
    " in the database of DIR.",
)
@debug_flag
def restore(run: RunLocation, files: tuple[Path, ...], run_id: str | None) -> None:
    """Add to the run in DIR the records that it lacks: those in FILE.jsonl... or in folders of
    such, and those of a run in MLflow."""
    if not files and run_id is None:
        raise UsageError("tuner restore takes files of records, or --mlflow RUN_ID")
    from tuner.view.words import amount

    restored = _restore(run, files, run_id)
    known = f"{restored.known} {'was' if restored.known == 1 else 'were'}"
    click.echo(f"added {amount(restored.added, 'record')}; {known} there already")
    if restored.strange:
        strange = amount(restored.strange, "record")
        click.echo(f"left out {strange} of tasks that the run does not have")


def _restore(run: RunLocation, files: tuple[Path, ...], run_id: str | None) -> Restored:
    from tuner.runs.folder import read_run
    from tuner.runs.lock import RunLock
    from tuner.runs.remote import open_store
    from tuner.storage.restore import restore as bring_back
    from tuner.tracking.mlflow_records import fetch_records
    from tuner.tracking.mlflow_uris import tracking_uri

    folder, _ = read_run(folder_of(run))
    with ExitStack() as stack:
        if run_id is not None:
            into = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="restore-")))
            uri = tracking_uri(folder.root, os.environ.get("MLFLOW_TRACKING_URI", ""))
            files = (*files, fetch_records(uri, run_id, into))
        stack.enter_context(RunLock(folder.lock))
        store = stack.enter_context(closing(open_store(run, folder)))
        return bring_back(files, store)
