"""Writes pages to files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.dynamic.kernel_set import KernelSet
from tuner.files.atomic import name_unwritable, write_bytes
from tuner.pages.page import page
from tuner.pages.wording import moment
from tuner.report.run_report import Bench, RunReport, run_report
from tuner.runs.folder import Manifest, RunFolder
from tuner.storage.base import RecordStore

_LIST = ".plots.json"
"""Names and hashes of the images beside it."""


def read_report(
    store: RecordStore,
    folder: RunFolder,
    manifest: Manifest,
    *,
    place: str,
    kernel_sets: Mapping[str, KernelSet],
    name: str = "",
) -> RunReport:
    """All that a page shows of a run.

    Args:
        place: its folder or URL, as a user types it.
        kernel_sets: of tasks with symbolic dimensions, by task key.
        name: another than its folder's.
    """
    return run_report(
        store,
        manifest,
        name=name or folder.root.resolve().name,
        place=place,
        kernel_sets=kernel_sets,
        bench=_bench(folder.bench),
    )


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


def keep_bench(file: Path, shapes: Sequence[Mapping[str, Any]], now_s: float) -> None:
    """Keep what `tuner bench` measured, for the page. Raises OSError.

    Args:
        shapes: as in `tuner.report.run_report.Bench`, without NaN.
        now_s: seconds since the epoch.
    """
    told = {"time": now_s, "shapes": list(shapes)}
    write_bytes(file, json.dumps(told, indent=1, allow_nan=False).encode())


def _bench(file: Path) -> Bench | None:
    """What was kept; None where nothing was, or it is damaged."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        shapes = [shape for shape in told["shapes"] if shape["tuned_ms"]]
        return Bench(float(told["time"]), shapes) if shapes else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
