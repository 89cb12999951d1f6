"""The seam to object storage, for a run whose files are not on a local disk.

An object store keeps whole objects under names with slashes. It never changes a part of an object,
and needs no locks, since one operation decides every race: to make an object only if there is none
of that name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tuner.errors import TunerError, describe_error


class ObjectStore(Protocol):
    """Keeps objects. A method's input is durable when the method returns.

    Methods may be called from any thread, and any number of processes may use the same store.
    Trouble with the object store is a `TunerError`.
    """

    @property
    def name(self) -> str:
        """The store's name for people: a path or a URL."""

    def create(self, path: str, data: bytes) -> bool:
        """Make an object, whole or not at all. If there is one, return False and change nothing.

        If several callers do this at the same time, exactly one of them makes it.
        """

    def replace(self, path: str, data: bytes) -> None:
        """Make an object, or put another in its place, whole or not at all."""

    def read(self, paths: Sequence[str]) -> dict[str, bytes]:
        """The objects of these names; missing objects are left out."""

    def list(self, prefix: str) -> list[str]:
        """Names of all objects that begin with `prefix`, which ends with a slash; sorted."""

    def remove(self, path: str, data: bytes) -> bool:
        """Remove an object if its content is `data`; if not, return False and change nothing."""


def unreachable(name: str, error: Exception) -> TunerError:
    """The error, in one line, for an object store that failed."""
    return TunerError(
        f"{name}: {describe_error(error)}; see that it is there and that you may write to it"
    )
