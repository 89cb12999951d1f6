"""Writes pages to files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from tuner.files.atomic import name_unwritable, write_bytes
from tuner.pages.page import page
from tuner.pages.wording import moment
from tuner.report.run_report import RunReport

_LIST = ".plots.json"
"""Names and hashes of the images beside it."""


def write_page(file: Path, runs: Sequence[RunReport], now_s: float) -> None:
    """Write a page on these runs.

    Args:
        now_s: seconds since the epoch.

    Raises:
        TunerError: the file cannot be written.
    """
    import platformdirs

    version = runs[0].manifest.tuner_version
    cache = Path(platformdirs.user_cache_dir("elastic-tuner")) / "pages"
    text = page(runs, made=f"written by tuner {version}, {moment(now_s)}", cache=cache).encode()
    with name_unwritable(file):
        if file.is_dir():
            raise IsADirectoryError(21, "Is a directory")
        write_bytes(file, text)


def write_plots(folder: Path, runs: Sequence[RunReport]) -> None:
    """Write the charts of a run, or those that compare several, as images, in the place of those
    that were written there before. A file beside them lists what was written: of all others none
    is removed, nor one that somebody changed.

    Raises:
        TunerError: one cannot be written.
    """
    from tuner.pages.plots import plots

    with name_unwritable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        earlier, written = _list(folder), {}
        for name, image in plots(runs):
            write_bytes(folder / name, image)
            written[name] = hashlib.sha256(image).hexdigest()
        for name in earlier.keys() - written.keys():
            _remove(folder / name, earlier[name])
        write_bytes(folder / _LIST, json.dumps(written, indent=1).encode())


def _list(folder: Path) -> dict[str, str]:
    """Names of the images that were written into a folder, and their hashes; none where the list
    is damaged."""
    try:
        told = dict(json.loads((folder / _LIST).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}
    return {name: of for name, of in told.items() if name == Path(name).name}


def _remove(file: Path, sha256: str) -> None:
    """Remove a file if it still is what it was. Raises OSError."""
    if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == sha256:
        file.unlink()
