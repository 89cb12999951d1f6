"""Places by name: from the URL that a user types to what keeps the objects there."""

from __future__ import annotations

from tuner.storage.objects.base import Place
from tuner.urls import check_url, folder_of


def open_place(url: str) -> Place:
    """The place that a URL names, see `check_url`; nothing is made there yet.

    Raises:
        UsageError: it is no such URL.
        TunerError: the driver of its scheme is not installed, or refuses.
    """
    check_url(url)
    if url.startswith("file://"):
        from tuner.storage.objects.folder import FolderPlace

        return FolderPlace(folder_of(url))
    from tuner.storage.objects.remote import FsspecPlace

    return FsspecPlace(url)
