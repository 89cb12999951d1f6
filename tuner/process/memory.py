"""Memory that a process holds and needs no more."""

from __future__ import annotations

import contextlib
import ctypes
import gc


def give_back_memory() -> None:
    """Return what is free to the system, which the C library's allocator would keep."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # a C library without it keeps the memory
        ctypes.CDLL(None).malloc_trim(0)
