"""Tensors with red zones: a kernel that reads or writes past their ends is seen.

A tensor ends where a page begins that may not be touched, up to the alignment that TVM asks for.
What is left on both sides is NaN for whoever reads it, and is compared afterwards.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_ALIGNMENT = 64
"""TVM's own tensors are aligned to this many bytes."""
_POISON = 0x7FF5
"""A NaN in float16, bfloat16, float32 and float64, as in `cpp/machine.hpp`."""
_PROT_NONE = 0


class Zoned:
    """A tensor in the CPU's memory, between red zones.

    Args:
        values: what it holds; for bfloat16, which numpy lacks, its bits.
        dtype: TVM's name of the type, where it is not that of `values`.
    """

    def __init__(self, values: Array, dtype: str | None = None) -> None:
        import tvm

        pages = -(-max(values.nbytes, 1) // mmap.PAGESIZE)
        self._memory = mmap.mmap(-1, (pages + 2) * mmap.PAGESIZE)
        every = np.frombuffer(self._memory, np.uint8)
        _protect(every[: mmap.PAGESIZE])
        _protect(every[-mmap.PAGESIZE :])
        inside = every[mmap.PAGESIZE : -mmap.PAGESIZE]
        inside.view(np.uint16)[:] = _POISON
        start = (inside.size - values.nbytes) // _ALIGNMENT * _ALIGNMENT
        self._before, self._after = inside[:start], inside[start + values.nbytes :]
        self._zones = (self._before.copy(), self._after.copy())
        raw = inside[start : start + values.nbytes]
        self.array: Array = raw.view(values.dtype).reshape(values.shape)
        """What the tensor holds now, in its own memory."""
        self.array[...] = values
        whole = tvm.runtime.from_dlpack(raw)
        self.tensor = whole._create_view(values.shape, dtype or str(values.dtype))

    def damage(self) -> str:
        """What was written outside of the tensor, in words; empty if nothing was."""
        for name, now, then in zip(
            ("before the start", "past the end"),
            (self._before, self._after),
            self._zones,
            strict=True,
        ):
            if (places := np.flatnonzero(now != then)).size:
                return f"{places.size} bytes were written {name} of a tensor"
        return ""


def call_zoned(function: Callable[..., Any], arguments: Sequence[Array]) -> list[Array]:
    """Call a function with tensors between red zones.

    Returns:
        What they hold afterwards.

    Raises:
        RuntimeError: something was written outside of a tensor; the text says of which.
    """
    zoned = [Zoned(argument) for argument in arguments]
    function(*(z.tensor for z in zoned))
    for number, one in enumerate(zoned):
        if damage := one.damage():
            raise RuntimeError(f"argument {number}: {damage}")
    return [one.array.copy() for one in zoned]


def _protect(pages: Array) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    address = ctypes.c_void_p(pages.ctypes.data)
    if library.mprotect(address, ctypes.c_size_t(pages.size), _PROT_NONE) != 0:
        raise OSError(ctypes.get_errno(), "a page could not be protected")
