"""Opens an existing run for reading: by its folder, or by its URL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.run_location import RunLocation

if TYPE_CHECKING:
    from tuner.runs.folder import Manifest
    from tuner.storage.sqlite_store import SqliteStore


def folder_of(run: RunLocation, *, model: bool = False) -> Path:
    """The folder of a run; for a URL, a local copy that is brought up to date first.

    Args:
        model: whether the copy of the model is needed too.

    Raises:
        TunerError: there is no run at the URL, or it cannot be read.
    """
    from tuner.runs.remote import local

    return local(run, model=model)


@contextlib.contextmanager
def open_run(
    run: RunLocation, *, wrong_too: bool = False
) -> Iterator[tuple[Manifest, SqliteStore]]:
    """The manifest of a run and its records, also while another process works on it.

    Args:
        wrong_too: whether to open a run whose model was found to differ from its source: for those
            who name no winner.

    Raises:
        TunerError: the run is missing, damaged, of another schema version or without records, or
            its model is wrong.
    """
    from tuner.runs.folder import read_run, refuse_unbegun
    from tuner.runs.import_check import refuse_wrong_import
    from tuner.storage.sqlite_store import SqliteStore
    from tuner.view.words import note_modelled

    folder, manifest = read_run(folder_of(run))
    refuse_unbegun(folder, run)
    if not wrong_too:
        refuse_wrong_import(folder)
    if note := note_modelled(manifest.target):
        click.echo(f"tuner: note: {note}", err=True)
    if manifest.precision is not None:
        click.echo(f"tuner: note: {manifest.precision.line}", err=True)
    with contextlib.closing(SqliteStore(folder.store, read_only=True)) as store:
        yield manifest, store
