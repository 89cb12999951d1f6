"""Places by name: from the URL that a user types to what keeps the objects there."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from tuner.errors import UsageError
from tuner.place import Place

_FILE = "file://"


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
    if url.startswith(_FILE):
        _folder(url)
        return
    from tuner import fsspec_place

    fsspec_place.check_url(url)


def open_place(url: str) -> Place:
    """The place that a URL names, see `check_url`; nothing is made there yet.

    Raises:
        UsageError: it is no such URL.
        TunerError: the driver of its scheme is not installed, or refuses.
    """
    check_url(url)
    if url.startswith(_FILE):
        from tuner.folder_place import FolderPlace

        return FolderPlace(_folder(url))
    from tuner.fsspec_place import FsspecPlace

    return FsspecPlace(url)


def _folder(url: str) -> Path:
    path = Path(unquote(url.removeprefix(_FILE)))
    if not path.is_absolute() or path == Path("/"):
        raise UsageError(f"{url!r} names no folder: write file:///path/of/the/run")
    return path
