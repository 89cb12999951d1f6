"""Sizes of a CPU's caches: found where kernels are timed, and carried in the target.

A target's `model` is free text to TVM, so every program that reads targets accepts it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

SYSFS = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# Caches of small server cores, where the system does not tell.
_USUAL_BYTES = {1: 32 << 10, 2: 512 << 10, 3: 8 << 20}
_TEXT = re.compile(r"l1=(\d+) l2=(\d+) l3=(\d+)")


def cache_bytes(folder: Path) -> dict[int, int]:
    """Bytes of a core's data caches by level, as the system tells them.

    Args:
        folder: such as `SYSFS`.
    """
    found = dict(_USUAL_BYTES)
    for index in sorted(folder.glob("index*")):
        try:
            level = int((index / "level").read_text())
            kind = (index / "type").read_text().strip()
            size = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and level in found and size[-1:] in _UNITS:
            found[level] = int(size[:-1]) * _UNITS[size[-1]]
    return found


def caches_text(sizes: Mapping[int, int]) -> str:
    """Sizes as a target carries them, such as `l1=32768 l2=524288 l3=33554432`."""
    return " ".join(f"l{level}={sizes[level]}" for level in sorted(sizes))


def caches_of(text: str) -> dict[int, int] | None:
    """The sizes that `caches_text` wrote; None for any other text."""
    found = _TEXT.fullmatch(text)
    return None if found is None else {level: int(found[level]) for level in _USUAL_BYTES}
