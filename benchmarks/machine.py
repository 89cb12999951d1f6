"""On what a benchmark ran: figures of different machines are not compared."""

from __future__ import annotations

import platform
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
