"""On what a benchmark ran: figures of different machines are not compared. And its CPU time."""

from __future__ import annotations

import platform
import resource
from typing import Any


def about() -> dict[str, Any]:
    """The device and the toolchain, as records name them, and Python's version."""
    from spaces.passes.toolchain import toolchain_fingerprint
    from spaces.targets.target import device_fingerprint, resolve_target

    return {
        "device": device_fingerprint(resolve_target("llvm")),
        "toolchain": toolchain_fingerprint(),
        "python": platform.python_version(),
    }


def spent_cpu_s() -> float:
    """Seconds of the CPU that this process took, and its children that ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(use.ru_utime + use.ru_stime for use in map(resource.getrusage, kinds))
