"""URLs that name where a run lives. Text alone: nothing is opened."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from tuner.errors import UsageError

_FILE = "file://"
DRIVERS = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
    "memory": "",
}
"""Schemes that can hold a run, and the package that each needs beside fsspec."""


def is_url(text: str) -> bool:
    """Whether a text names a place by a scheme: `s3://bucket/run`, `file:///mnt/run`."""
    scheme, separator, _ = text.partition("://")
    return bool(separator) and scheme.isalnum()


def check_url(url: str) -> None:
    """Refuse a URL that cannot name a run; nothing is opened.

    Args:
        url: `file:///mnt/shared/run` for a path that several machines see; `s3://`, `gs://`,
            `abfs://` for object storage; `memory://` for tests.

    Raises:
        UsageError: it is none of these, or names no folder.
    """
    if not is_url(url):
        raise UsageError(f"{url!r} is no URL: write for example s3://bucket/run")
    scheme, _, path = url.partition("://")
    if scheme == "file":
        folder_of(url)
        return
    if scheme not in DRIVERS:
        known = ", ".join(f"{known}://" for known in ("file", "s3", "gs", "abfs"))
        raise UsageError(f"a run cannot live on {scheme}:// (but on {known}): mount it instead")
    if not path.strip("/"):
        raise UsageError(f"{url!r} names no folder: write for example {scheme}://bucket/run")


def folder_of(url: str) -> Path:
    """The path that a `file://` URL names.

    Raises:
        UsageError: it names none.
    """
    path = Path(unquote(url.removeprefix(_FILE)))
    if not path.is_absolute() or path == Path("/"):
        raise UsageError(f"{url!r} names no folder: write file:///path/of/the/run")
    return path
