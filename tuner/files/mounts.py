"""The type of the file system that a path is on, as far as the system tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SHARED = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p"}
    | {"ceph", "lustre", "gpfs", "beegfs", "glusterfs", "orangefs"}
)
_FUSE = "fuse."
_LOCAL_FUSE = frozenset({"fuse-overlayfs", "gocryptfs", "encfs", "mergerfs", "bindfs"})
"""FUSE file systems that mostly lie over a local disk; the others count as shared."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A file system of type `kind`, mounted at a folder."""

    at: Path
    kind: str


def mounts() -> list[Mount]:
    """The mounts of this machine, oldest first; empty where it does not tell."""
    import psutil

    try:
        return [Mount(Path(m.mountpoint), m.fstype) for m in psutil.disk_partitions(all=True)]
    except (OSError, psutil.Error):
        return []


def file_system(path: Path, mounted: Sequence[Mount] | None = None) -> str:
    """The type of the file system that a path is on, or would be; empty where it is not known.

    Args:
        mounted: mounts, oldest first; None is this machine's.
    """
    place = path.resolve()
    holding = [m for m in (mounts() if mounted is None else mounted) if place.is_relative_to(m.at)]
    # Of several mounts at one folder the last lies on top.
    return max(reversed(holding), key=lambda m: len(m.at.parts), default=Mount(Path(), "")).kind


def is_shared(kind: str) -> bool:
    """Whether several machines may see a file system of this type."""
    if kind.startswith(_FUSE):
        return kind.removeprefix(_FUSE) not in _LOCAL_FUSE
    return kind in _SHARED
