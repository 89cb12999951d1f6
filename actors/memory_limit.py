"""The memory there is for this process: the machine's, or the limit of its control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def memory_bytes(root: Path = Path("/")) -> int:
    """The least of the machine's memory and the limits on control groups that this process is in.

    A container, and a job of most cluster managers, is such a group. A limit that cannot be read
    is ignored.

    Args:
        root: root of the file system, with `/proc` and `/sys` in it.
    """
    return min([_machine_bytes(root), *_limits(root)])


def _machine_bytes(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) << 10
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _limits(root: Path) -> Iterator[int]:
    """Limits on this process's groups and on those around them, of both versions of cgroups.

    Inside a container the path that the kernel reports may be the host's, while the files of the
    container's own group are at the top: so every parent of the path is tried.
    """
    groups = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            files = [(groups, "memory.max"), (groups / "unified", "memory.max")]
        elif "memory" in controllers.split(","):
            files = [(groups / "memory", "memory.limit_in_bytes")]
        else:
            continue
        group = PurePosixPath(path.lstrip("/"))
        for top, name in files:
            for around in (group, *group.parents):
                yield from (int(n) for n in _lines(top / around / name) if n.isdigit())


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
