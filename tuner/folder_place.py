"""A place on a path that several machines see, such as NFS.

An object is written to a hidden temporary file, synced, and then linked (or renamed) to its name,
and the folder is synced: no reader sees half of it, and it outlives a power cut. A hard link is
refused where there is a file, on NFS by the server itself, so of two who make an object one does.
A file system without hard links gets files opened exclusively instead: as good against a second
writer, but a kill in the middle leaves a torn object, as `tuner.segments` expects of the last one.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.atomic import sync_folder
from tuner.errors import TunerError
from tuner.place import unreachable

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class FolderPlace:
    """A `Place` in the folder `root`, made when something is written to it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def name(self) -> str:
        """See `Place.name`."""
        return self._root.absolute().as_uri()

    def create(self, path: str, data: bytes) -> bool:
        """See `Place.create`."""
        file = self._root / path
        with self._mended(), self._temporary(file, data) as temporary:
            try:
                os.link(temporary, file)  # unlike a rename, refuses where there is a file
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                return _create_in_place(file, data)
            sync_folder(file.parent)
            return True

    def replace(self, path: str, data: bytes) -> None:
        """See `Place.replace`."""
        file = self._root / path
        with self._mended(), self._temporary(file, data) as temporary:
            temporary.replace(file)
            sync_folder(file.parent)

    def read(self, paths: Sequence[str]) -> dict[str, bytes]:
        """See `Place.read`."""
        found = {}
        with self._mended():
            for path in paths:
                with suppress(FileNotFoundError, NotADirectoryError):
                    found[path] = (self._root / path).read_bytes()
        return found

    def list(self, prefix: str) -> list[str]:
        """See `Place.list`."""
        found = []
        with self._mended():
            for folder, folders, files in os.walk(self._root / prefix, onerror=_unless_missing):
                folders[:] = [name for name in folders if not name.startswith(".")]
                found += [
                    (Path(folder) / name).relative_to(self._root).as_posix()
                    for name in files
                    if not name.startswith(".")
                ]
        return sorted(found)

    def delete(self, path: str) -> None:
        """See `Place.delete`."""
        file = self._root / path
        with self._mended(), suppress(FileNotFoundError):
            file.unlink()
            sync_folder(file.parent)

    @contextmanager
    def _temporary(self, file: Path, data: bytes) -> Iterator[Path]:
        """A hidden file next to `file` with these bytes, synced; gone after the block."""
        made = [folder for folder in (file.parent, *file.parent.parents) if not folder.exists()]
        file.parent.mkdir(parents=True, exist_ok=True)
        for folder in made:
            sync_folder(folder.parent)
        temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}.tmp")
        try:
            with temporary.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            yield temporary
        finally:
            with suppress(OSError):
                temporary.unlink()

    @contextmanager
    def _mended(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise TunerError(f"{self.name}: no space left there; free some") from error
            raise unreachable(self.name, error) from error


def _create_in_place(file: Path, data: bytes) -> bool:
    try:
        with file.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
    except FileExistsError:
        return False
    sync_folder(file.parent)
    return True


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
