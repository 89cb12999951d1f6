"""The name of this machine in a folder that several machines share."""

from __future__ import annotations

import hashlib
import re
import socket
from contextlib import suppress
from pathlib import Path

_IDENTITIES = (Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id"))
"""Files that tell machines of one name apart; the second changes with each boot."""


def machine_name(identities: tuple[Path, ...] = _IDENTITIES) -> str:
    """Name of a folder for this machine: its host name and a hash of its identity.

    Args:
        identities: files, of which the first that is not empty counts.
    """
    host = socket.gethostname()
    said = host
    for file in identities:
        with suppress(OSError, ValueError):
            if found := file.read_text().strip():
                said = f"{host} {found}"
                break
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", host.partition(".")[0])[:40] or "machine"
    return f"{name}-{hashlib.sha256(said.encode()).hexdigest()[:8]}"
