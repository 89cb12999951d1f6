"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from tuner.errors import TunerError


@contextmanager
def atomic_file(path: Path, *, replace: bool = True) -> Iterator[TextIO]:
    """A text file to write, put in place under `path` when the block ends without an error.

    Its bytes and its name are synced to the disk; until then a hidden temporary file next to
    `path` holds them. After an error no file is left behind and `path` is unchanged.

    Args:
        path: path of the file.
        replace: whether it may replace another file.

    Raises:
        FileExistsError: there is a file and `replace` is false.
        NotExclusive: `replace` is false, and the file system cannot decide which writer is first.
        OSError: the disk refuses, or `path` is not a regular file.
    """
    if replace and path.exists() and not path.is_file():
        # A device or a pipe would be lost: a new file would take its place.
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
            name_first(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


@contextmanager
def output_file(path: Path) -> Iterator[TextIO]:
    """The same for a file that a user names: folders above it that are missing are made.

    Raises:
        OSError: the disk refuses, or `path` is not a regular file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        yield file


@contextmanager
def name_unwritable(what: object) -> Iterator[None]:
    """Turn an error of the disk into one line that names what cannot be written.

    Raises:
        TunerError: there was one.
    """
    try:
        yield
    except OSError as error:
        raise TunerError(f"cannot write {what}: {error.strerror or error}") from error


def write_bytes(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace a small file in one step: a reader sees the old or the new one, whole. Unlike with
    `atomic_file`, the last write may be lost in a power cut. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def put_file(made: Path, path: Path) -> None:
    """Move a file that was made beside `path` to `path`, durable, whole or not at all.

    Raises:
        OSError: the disk refuses, or `path` is a folder.
    """
    _sync(made)
    made.replace(path)
    sync_folder(path.parent)


def put_folder(made: Path, path: Path) -> None:
    """Move a folder that was made beside `path` to `path`, durable with all its content.

    Until then there is nothing at `path`, whatever happens to the machine.

    Raises:
        OSError: the disk refuses, or `path` exists already.
    """
    for folder, _, files in os.walk(made):
        for name in files:
            _sync(Path(folder) / name)
        sync_folder(Path(folder))
    made.rename(path)
    sync_folder(path.parent)


def name_first(temporary: Path, path: Path) -> None:
    """Name a file if the name is free, decided by the file system: of several callers one succeeds.

    A hard link, unlike a rename, refuses to replace a file; where there are no hard links (FAT,
    exFAT, some SMB), Linux's RENAME_NOREPLACE is used. The temporary name is gone then.

    Raises:
        FileExistsError: another was first; the temporary file stays.
        NotExclusive: the file system has neither.
    """
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    else:
        temporary.unlink()
        return
    _rename_first(temporary, path)


class NotExclusive(OSError):
    """The file system cannot give a whole file a name only if the name is free."""


_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_NO_SUCH_RENAME = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_HERE = -100
"""AT_FDCWD: paths are relative to the working folder."""
_NO_REPLACE = 1
"""RENAME_NOREPLACE of Linux."""


def _rename_first(temporary: Path, path: Path) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    try:
        rename = library.renameat2
    except AttributeError:
        code = errno.ENOSYS
    else:
        names = os.fsencode(temporary), os.fsencode(path)
        if rename(_HERE, names[0], _HERE, names[1], _NO_REPLACE) == 0:
            return
        code = ctypes.get_errno()
    if code in _NO_SUCH_RENAME:
        raise NotExclusive(code, "neither hard links nor exclusive renames", str(path))
    raise OSError(code, os.strerror(code), str(path))


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable."""
    _sync(folder)
