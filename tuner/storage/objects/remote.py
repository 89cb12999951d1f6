"""An object store on object storage, through fsspec, which is used in this file only.

A run needs storage whose server makes an object if and only if there is none, and a driver that
asks for it: `s3://` (S3 and servers with its conditional writes, such as MinIO; s3fs of 2025 or
newer), `gs://` and `abfs://`, each with a driver of its own that is installed beside fsspec. S3
servers that ignore the condition are detected by `tuner.storage.segments.lease` before anything is
written. S3 is tested against a simulated server; for Google's and Azure's we rely on their drivers'
code. `memory://` lives in this process only. All of these show an object to everyone as soon as it
is written. Drivers of other schemes (sftp, webdav, hdfs, ...) look first and write then, so that
two writers could both believe that they were first: they are refused; mount such storage instead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from tuner.errors import TunerError
from tuner.run_location import DRIVERS, check_url
from tuner.storage.objects.base import unreachable

_creating = threading.Lock()
"""The file system in memory looks first and writes then; within a process this lock makes it one
step."""


class FsspecObjectStore:
    """An `ObjectStore` on object storage.

    Args:
        url: folder that holds everything, such as `s3://bucket/run1`. Credentials are the driver's
            own, from environment variables or files.

    Raises:
        UsageError: a scheme that cannot hold a run, or no folder is named.
        TunerError: fsspec or the driver is not installed, or the driver refuses.
    """

    def __init__(self, url: str) -> None:
        check_url(url)
        self.name = url.rstrip("/")
        scheme = url.partition("://")[0]
        self._files, self._root = _open(scheme, self.name)
        self._guard: AbstractContextManager[object] = nullcontext()
        if scheme == "memory":
            self._guard = _creating

    def create(self, path: str, data: bytes) -> bool:
        """See `ObjectStore.create`."""
        with self._as_tuner_error(), self._guard:
            try:
                self._files.pipe_file(self._at(path), data, mode="create")
            except OSError:
                # Servers word a refusal in many ways. If the object is there, creating it was
                # refused, or it was made and the answer was lost: callers who care read it.
                if not self._files.exists(self._at(path)):
                    raise
                return False
            return True

    def replace(self, path: str, data: bytes) -> None:
        """See `ObjectStore.replace`."""
        with self._as_tuner_error():
            self._files.pipe_file(self._at(path), data)

    def read(self, paths: Sequence[str]) -> dict[str, bytes]:
        """See `ObjectStore.read`."""
        with self._as_tuner_error():
            # Many at a time, where the driver can.
            names = {self._at(path): path for path in paths}
            got = self._files.cat(list(names), on_error="return") if names else {}
            found = {}
            for name, data in got.items():
                if isinstance(data, FileNotFoundError):
                    continue
                if isinstance(data, Exception):
                    raise data
                found[names[name]] = bytes(data)
            return found

    def list(self, prefix: str) -> list[str]:
        """See `ObjectStore.list`."""
        with self._as_tuner_error(), suppress(FileNotFoundError):
            self._files.invalidate_cache()
            names = self._files.find(self._at(prefix).rstrip("/"))
            return sorted(name.removeprefix(f"{self._root}/") for name in names)
        return []

    def remove(self, path: str, data: bytes) -> bool:
        """See `ObjectStore.remove`. Looks first and removes then: no driver offers one step. An
        object here is whole from the start, so only one that was damaged later is ever removed."""
        with self._as_tuner_error(), self._guard, suppress(FileNotFoundError):
            if self._files.cat_file(self._at(path)) == data:
                self._files.rm_file(self._at(path))
                return True
        return False

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    @contextmanager
    def _as_tuner_error(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # the border: each driver has exceptions of its own
            raise unreachable(self.name, error) from error


def _open(scheme: str, url: str) -> tuple[Any, str]:
    """The driver for a URL, and the URL's path as the driver writes it."""
    missing = " and ".join(filter(None, ("fsspec", DRIVERS[scheme])))
    try:
        from fsspec.core import url_to_fs

        files, root = url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        raise TunerError(
            f"{scheme}:// needs {missing}: pip install {missing.replace(' and', '')}"
        ) from error
    except Exception as error:  # the border: a driver may fail in its own ways when it is made
        raise unreachable(url, error) from error
    return files, str(root).rstrip("/")
