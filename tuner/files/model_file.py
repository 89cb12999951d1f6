"""What is looked at before a file is read as a model."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import TunerError

_POINTER = b"version https://git-lfs.github.com/spec/"


def check_file(path: Path) -> None:
    """Look whether a path is a file of its own.

    Raises:
        TunerError: it is missing, a folder, or what Git LFS leaves in the file's place.
    """
    if path.is_dir():
        raise TunerError(f"{path} is a folder: name the file of the model in it")
    if not path.is_file():
        raise TunerError(f"{path}: no such file")
    if is_pointer(path):
        raise TunerError(
            f"{path} is a pointer of Git LFS, and the model is not here yet: git lfs pull gets it"
        )


def is_pointer(path: Path) -> bool:
    """Whether Git LFS left a pointer in a file's place."""
    try:
        with path.open("rb") as file:
            return file.read(len(_POINTER)) == _POINTER
    except OSError:
        return False
