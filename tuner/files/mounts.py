"""On which kind of file system a path is, as far as Linux tells; elsewhere nothing is known."""

from __future__ import annotations

import re
from pathlib import Path

MOUNTINFO = Path("/proc/self/mountinfo")

_SHARED = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p"}
    | {"ceph", "lustre", "gpfs", "beegfs", "glusterfs", "orangefs"}
)
_FUSE = "fuse."
_LOCAL_FUSE = frozenset({"fuse-overlayfs", "gocryptfs", "encfs", "mergerfs", "bindfs"})
"""File systems served by a program that are over a local disk, mostly; the others are not."""
_ESCAPE = re.compile(r"\\([0-7]{3})")


def file_system(path: Path, mountinfo: Path = MOUNTINFO) -> str:
    """The type of the file system that a path is on, or would be; empty where it is not known.

    Args:
        mountinfo: what is mounted where, in the form of Linux.
    """
    try:
        lines = mountinfo.read_text().splitlines()
    except OSError:
        return ""
    place = path.resolve()
    found, depth = "", -1
    for line in lines:
        fields, _, more = line.partition(" - ")
        at = Path(_ESCAPE.sub(lambda octal: chr(int(octal[1], 8)), fields.split()[4]))
        if place.is_relative_to(at) and len(at.parts) >= depth:  # the last one lies on top
            found, depth = more.split()[0], len(at.parts)
    return found


def is_shared(kind: str) -> bool:
    """Whether several machines may see a file system of this type."""
    if kind.startswith(_FUSE):
        return kind.removeprefix(_FUSE) not in _LOCAL_FUSE
    return kind in _SHARED
