"""What can be compared between two toolchains."""

from __future__ import annotations

_IN_HASHES = ("tvm", "ffi")
"""The parts of a toolchain that hashes of programs depend on."""


def hashes_alike(one: str, other: str) -> bool:
    """Whether a program has the same hash with both; also where the first is not known."""
    parts = [dict(part.partition("=")[::2] for part in each.split()) for each in (one, other)]
    return not one or all(parts[0].get(name) == parts[1].get(name) for name in _IN_HASHES)
