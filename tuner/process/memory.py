"""Memory that a process holds and does not need any more."""

from __future__ import annotations

import contextlib
import ctypes
import gc


def give_back_memory() -> None:
    """Return to the system the free memory that the C library's allocator would keep."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # a C library without it keeps the memory
        ctypes.CDLL(None).malloc_trim(0)
