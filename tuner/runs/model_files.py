"""The files of a model's copy in a run, and their checksums.

`model.json` beside them is written last and lists the SHA-256 of each. Copies of earlier versions
list none: these are only checked for empty files.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tuner.errors import TunerError

DESCRIPTION = "model.json"


class DamagedCopy(TunerError):
    """A copy of a model differs from what was copied.

    Attributes:
        finding: what is wrong with it, in one line.
    """

    def __init__(self, where: Path | str, why: str) -> None:
        self.finding = f"the copy of the model in {where} is damaged ({why})"
        super().__init__(f"{self.finding}: run `tuner tune` with the model, which copies it anew")


def checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of all files below a folder except the description, by their names in it.

    Raises:
        OSError: a file cannot be read.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): _checksum(path)
        for path in files
        if path != folder / DESCRIPTION
    }


def check_copy(folder: Path, model_hash: str = "", *, where: Path | str = "") -> None:
    """Check that the copy of a model is whole, before it is loaded or passed on.

    Args:
        model_hash: hash of the run's model, from its manifest; empty is not compared.
        where: place that a message names instead of the folder.

    Raises:
        DamagedCopy: it is not whole, or is another model's.
    """
    if why := _finding(folder, model_hash):
        raise DamagedCopy(where or folder, why)


def _finding(folder: Path, model_hash: str) -> str:
    """The fault of a copy, in words; empty if there is none."""
    try:
        about = json.loads((folder / DESCRIPTION).read_bytes())
        found = checksums(folder)
    except (OSError, ValueError) as error:
        return f"{DESCRIPTION}: {error}"
    if not isinstance(about, dict):
        return f"{DESCRIPTION} describes nothing"
    copied = about.get("content_hash")
    if model_hash and copied not in (None, model_hash):
        return f"it is of model {copied}, the run of {model_hash}"
    files = about.get("files")
    if not isinstance(files, dict):
        empty = hashlib.sha256().hexdigest()
        return next((f"{name} is empty" for name, told in found.items() if told == empty), "")
    for name, checksum in files.items():
        if found.get(name) != checksum:
            return f"{name} is {'not what was copied' if name in found else 'missing'}"
    return ""


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
