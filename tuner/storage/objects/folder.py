"""An object store on a path that several machines see, such as NFS.

An object is written to a hidden temporary file, synced, and then linked (or renamed) to its name,
and the folder is synced: no reader sees half of it, and it outlives a power cut. A hard link is
refused where there is a file, on NFS by the server itself, so of two writers of an object one wins.
Where there are no hard links, a rename that refuses to replace a file is used
(`tuner.files.atomic.name_first`). A file system with neither is refused: a file that is opened
exclusively and then written has its name before it is whole, so that a file left by a full disk
cannot be told from one that is still being written.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.errors import TunerError
from tuner.files.atomic import NotExclusive, name_first, sync_folder
from tuner.storage.objects.base import unreachable


class FolderObjectStore:
    """An `ObjectStore` in the folder `root`, made when something is written to it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def name(self) -> str:
        """See `ObjectStore.name`."""
        return self._root.absolute().as_uri()

    def create(self, path: str, data: bytes) -> bool:
        """See `ObjectStore.create`."""
        file = self._root / path
        with self._as_tuner_error(), self._temporary(file, data) as temporary:
            try:
                name_first(temporary, file)
            except FileExistsError:
                return False
            sync_folder(file.parent)
            return True

    def replace(self, path: str, data: bytes) -> None:
        """See `ObjectStore.replace`."""
        file = self._root / path
        with self._as_tuner_error(), self._temporary(file, data) as temporary:
            temporary.replace(file)
            sync_folder(file.parent)

    def read(self, paths: Sequence[str]) -> dict[str, bytes]:
        """See `ObjectStore.read`."""
        found = {}
        with self._as_tuner_error():
            for path in paths:
                with suppress(FileNotFoundError, NotADirectoryError):
                    found[path] = (self._root / path).read_bytes()
        return found

    def list(self, prefix: str) -> list[str]:
        """See `ObjectStore.list`."""
        found = []
        with self._as_tuner_error():
            for folder, folders, files in os.walk(self._root / prefix, onerror=_unless_missing):
                folders[:] = [name for name in folders if not name.startswith(".")]
                found += [
                    (Path(folder) / name).relative_to(self._root).as_posix()
                    for name in files
                    if not name.startswith(".")
                ]
        return sorted(found)

    def remove(self, path: str, data: bytes) -> bool:
        """See `ObjectStore.remove`."""
        file = self._root / path
        taken = _beside(file)
        with self._as_tuner_error(), suppress(FileNotFoundError):
            if file.read_bytes() != data:
                return False
            file.rename(taken)  # only one caller gets the file, and can then check its content
            if taken.read_bytes() == data:
                taken.unlink()
                sync_folder(file.parent)
                return True
            name_first(taken, file)  # another object, put there in between: put it back
        return False

    @contextmanager
    def _temporary(self, file: Path, data: bytes) -> Iterator[Path]:
        """A hidden file next to `file` with these bytes, synced; gone after the block."""
        made = [folder for folder in (file.parent, *file.parent.parents) if not folder.exists()]
        file.parent.mkdir(parents=True, exist_ok=True)
        for folder in made:
            sync_folder(folder.parent)
        temporary = _beside(file)
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
    def _as_tuner_error(self) -> Iterator[None]:
        try:
            yield
        except NotExclusive as error:
            raise TunerError(
                f"{self.name}: its file system has neither hard links nor exclusive renames, so it "
                "cannot keep a second writer out: use another"
            ) from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise TunerError(f"{self.name}: no space left there; free some") from error
            raise unreachable(self.name, error) from error


def _beside(file: Path) -> Path:
    """An unused hidden name in the folder of a file."""
    return file.with_name(f".{file.name}.{secrets.token_hex(4)}.tmp")


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
