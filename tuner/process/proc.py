"""The memory of processes, as Linux tells it; shared libraries count for each process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def resident_bytes(pid: int) -> int:
    """Resident size of a process; 0 for one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def group_bytes(group: int) -> int:
    """Resident size of all processes of a group."""
    return sum(map(resident_bytes, _members(group)))


def _members(group: int) -> Iterator[int]:
    """The processes of a group, found among all: not every kernel lists a process's children."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it has just ended
            # The name, in brackets, may hold anything; then state, parent and group.
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            if len(fields) > 2 and int(fields[2]) == group:
                yield int(name)
