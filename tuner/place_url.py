"""Places by name: from the URL that a user types to what keeps the objects there."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from tuner.errors import UsageError
from tuner.place import Place


def is_url(text: str) -> bool:
    """Whether a text names a place by a scheme: `s3://bucket/run`, `file:///mnt/run`."""
    scheme, separator, _ = text.partition("://")
    return bool(separator) and scheme.isalnum()


def open_place(url: str) -> Place:
    """The place that a URL names; nothing is made there yet.

    Args:
        url: `file:///mnt/shared/run` for a path that several machines see; `s3://`, `gs://`,
            `abfs://` for object storage; `memory://` for tests.

    Raises:
        UsageError: it is no URL, or of a scheme that cannot hold a run.
        TunerError: the driver of its scheme is not installed, or refuses.
    """
    scheme, _, rest = url.partition("://")
    if not is_url(url):
        raise UsageError(f"{url!r} is no URL: write for example s3://bucket/run")
    if scheme == "file":
        return _folder(url, rest)
    from tuner.fsspec_place import FsspecPlace

    return FsspecPlace(url)


def _folder(url: str, rest: str) -> Place:
    from tuner.folder_place import FolderPlace

    path = Path(unquote(rest))
    if not path.is_absolute() or path == Path("/"):
        raise UsageError(f"{url!r} names no folder: write file:///path/of/the/run")
    return FolderPlace(path)
