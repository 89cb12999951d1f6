"""A run's place: a folder of this machine, or a URL that several see. Nothing is opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from tuner.checks import nonempty
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


@dataclass(frozen=True, slots=True)
class RunLocation:
    """The place of a run; see `tuner.runs.remote` for its content. Made by `of`.

    Attributes:
        text: the folder's path, or the URL without a slash at its end.
    """

    text: str

    @classmethod
    def of(cls, named: RunLocation | Path | str) -> RunLocation:
        """The location that a user named: a path, or text that is a URL or a path.

        Raises:
            UsageError: it is empty, or a URL that cannot name a run.
        """
        if isinstance(named, RunLocation):
            return named
        if isinstance(named, Path):
            return cls(str(named))
        if not is_url(nonempty(named)):
            return cls(str(Path(named)))
        check_url(named)
        return cls(named.rstrip("/"))

    def __str__(self) -> str:
        return self.text

    @property
    def is_url(self) -> bool:
        """Whether it is a URL, which several machines can see."""
        return is_url(self.text)

    @property
    def named(self) -> Path | str:
        """The location as users of Python write it: a path, or a URL as text."""
        return self.text if self.is_url else Path(self.text)

    @property
    def folder(self) -> Path:
        """The run folder; only for a location that is not a URL."""
        assert not self.is_url, self.text
        return Path(self.text)

    @property
    def name(self) -> str:
        """The last part of the path or URL."""
        return self.text.rpartition("/")[2]

    def below(self, name: str) -> RunLocation:
        """The location of another run, below this one."""
        return RunLocation(f"{self.text}/{name}" if self.is_url else str(self.folder / name))

    def resolved(self) -> RunLocation:
        """The same location, valid in any working directory."""
        return self if self.is_url else RunLocation(str(self.folder.resolve()))


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
        UsageError: it has another scheme, or names no folder.
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
        UsageError: it does not name one.
    """
    path = Path(unquote(url.removeprefix(_FILE)))
    if not path.is_absolute() or path == Path("/"):
        raise UsageError(f"{url!r} names no folder: write file:///path/of/the/run")
    return path
