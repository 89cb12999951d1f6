"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO


@contextmanager
def atomic_file(path: Path, *, replace: bool = True) -> Iterator[TextIO]:
    """A text file to write, put in place under `path` when the block ends without an error.

    Its bytes and its name are synced to the disk; until then a hidden temporary file next to
    `path` holds them. After an error nothing is left and what was at `path` is still there.

    Args:
        path: where it goes.
        replace: whether it may take the place of another file.

    Raises:
        FileExistsError: there is a file and `replace` is false.
        OSError: the disk refuses, or at `path` is something else than a file.
    """
    if replace and path.exists() and not path.is_file():
        # A device or a pipe would be gone: a new file takes the place of what is there.
        kind = errno.EISDIR if path.is_dir() else errno.EINVAL
        raise OSError(kind, "Is a directory" if path.is_dir() else "Not a regular file", str(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if replace:
            temporary.replace(path)
        else:
            os.link(temporary, path)  # unlike a rename, refuses where there is a file
            temporary.unlink()
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def write_bytes(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace a small file in one step: a reader sees the old or the new one, whole. What was
    written last may be lost with the power, unlike an `atomic_file`. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
