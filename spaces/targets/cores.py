"""The number of cores this process may use, by the machine, its affinity and container quota, and
the threads that kernels run with on them."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """Physical cores among those that this process may use.

    Args:
        cgroup: folder where the control groups are mounted.
    """
    import psutil

    allowed = count_allowed_cores(cgroup)
    return max(1, min(psutil.cpu_count(logical=False) or allowed, allowed))


def count_allowed_cores(cgroup: Path = _CGROUP) -> int:
    """Logical cores that affinity and the control group's quota leave to this process."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    for quota in (_quota(cgroup / "cpu.max"), _quota_v1(cgroup / "cpu")):
        if quota is not None:
            cores = min(cores, max(1, int(quota)))
    return cores


def _quota(path: Path) -> float | None:
    """Cores of time of a version 2 group; None where it has no limit."""
    try:
        limit, period = path.read_text().split()
        return None if limit == "max" else float(limit) / float(period)
    except (OSError, ValueError):
        return None


def _quota_v1(folder: Path) -> float | None:
    """Cores of time of a version 1 group; None where it has no limit."""
    try:
        limit = float((folder / "cpu.cfs_quota_us").read_text())
        period = float((folder / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return limit / period if limit > 0 and period > 0 else None


def thread_variables(threads: int) -> dict[str, str]:
    """Variables of a process in which TVM runs kernels, to be set before it runs the first.

    A library sets up the same by itself (`library_threads.c`): as many threads, none of them bound
    to a CPU. TVM would bind its workers and leave the calling thread free to share their cores.
    """
    return {"TVM_NUM_THREADS": str(threads), "TVM_BIND_THREADS": "0"}
