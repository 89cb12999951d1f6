"""Object stores by the URL that a user types."""

from __future__ import annotations

from tuner.run_location import check_url, folder_of
from tuner.storage.objects.base import ObjectStore


def open_object_store(url: str) -> ObjectStore:
    """The object store that a URL names, see `check_url`; nothing is made there yet.

    Raises:
        UsageError: it is not such a URL.
        TunerError: the driver of its scheme is not installed, or refuses.
    """
    check_url(url)
    if url.startswith("file://"):
        from tuner.storage.objects.folder import FolderObjectStore

        return FolderObjectStore(folder_of(url))
    from tuner.storage.objects.remote import FsspecObjectStore

    return FsspecObjectStore(url)
