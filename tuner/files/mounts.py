"""On which kind of file system a path is, as far as the system tells."""

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
"""File systems served by a program that are over a local disk, mostly; the others are not."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A file system of type `kind`, mounted at a folder."""

    at: Path
    kind: str


def mounts() -> list[Mount]:
    """What is mounted on this machine, oldest first; nothing where it does not tell."""
    import psutil

    try:
        return [Mount(Path(m.mountpoint), m.fstype) for m in psutil.disk_partitions(all=True)]
    except (OSError, psutil.Error):
        return []


def file_system(path: Path, mounted: Sequence[Mount] | None = None) -> str:
    """The type of the file system that a path is on, or would be; empty where it is not known.

    Args:
        mounted: oldest first; None looks at this machine.
    """
    place = path.resolve()
    holding = [m for m in (mounts() if mounted is None else mounted) if place.is_relative_to(m.at)]
    # Of several at one folder the last one lies on top.
    return max(reversed(holding), key=lambda m: len(m.at.parts), default=Mount(Path(), "")).kind


def is_shared(kind: str) -> bool:
    """Whether several machines may see a file system of this type."""
    if kind.startswith(_FUSE):
        return kind.removeprefix(_FUSE) not in _LOCAL_FUSE
    return kind in _SHARED
