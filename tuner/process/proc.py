"""Processes as Linux tells of them: state, parent, group and start, and their memory, in which
shared libraries count for each process.

Not with psutil: it is asked ten times a second while a kernel is timed, and by children that must
start quickly; psutil tells the start of a process by the wall clock, which may be set.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """A process at one moment.

    Attributes:
        state: a letter: T stopped, Z a zombie, X gone, others alive.
        started: ticks since boot; with its pid it identifies the process for ever.
    """

    state: str
    parent: int
    group: int
    started: str


def read_stat(pid: int) -> ProcessStat | None:
    """A process as it is now; None once it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in brackets, may hold anything.
    fields = text.rpartition(")")[2].split()
    return ProcessStat(fields[0], int(fields[1]), int(fields[2]), fields[19]) if fields else None


def resident_bytes(pid: int) -> int:
    """Resident size of a process; 0 for one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def group_bytes(group: int) -> int:
    """Resident size of all processes of a group, found among all: not every kernel lists a
    process's children."""
    found = 0
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):  # it is another user's
            stat = read_stat(pid)
            found += resident_bytes(pid) if stat is not None and stat.group == group else 0
    return found
