"""Whether a library with an open dimension is right for every size, and what its decision costs.

Runs in a process of its own (`benchmarks.dynamic` starts it), with the right number of threads.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dynamic_programs import DEPTH, HEADS, HIDDEN, WIDTH
from benchmarks.race import aligned

_RED_ZONE = 1024
_PATTERN = 12345.0
_ROUNDS = 40
_MOST_KERNELS = 64


class Checker:
    """Holds one library."""

    def __init__(self, library: Path, kind: str) -> None:
        import tvm

        self._library = tvm.runtime.load_module(str(library))
        self._kind = kind

    def errors(self, sizes: Sequence[int]) -> list[str]:
        """What is wrong: results that differ from NumPy's, elements that were not written, memory
        around the result that was."""
        function = self._library[self._kind]
        return [found for size in sizes if (found := self._error(function, size))]

    def _error(self, function: Any, size: int) -> str:
        import tvm

        a, b, want = operands(self._kind, size)
        zone = aligned(np.full(want.size + 2 * _RED_ZONE, _PATTERN, np.float32))
        out = zone[_RED_ZONE : _RED_ZONE + want.size].reshape(want.shape)
        out[...] = np.nan
        result = tvm.runtime.from_dlpack(out) if want.size else tvm.runtime.tensor(out)
        function(tvm.runtime.tensor(a), tvm.runtime.tensor(b), result)
        got = result.numpy()
        if not (zone[:_RED_ZONE] == _PATTERN).all() or not (zone[-_RED_ZONE:] == _PATTERN).all():
            return f"T={size}: wrote outside of its result"
        if want.size and not np.allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max()):
            return f"T={size}: largest error {np.nanmax(np.abs(got - want)):.3g}"
        return ""

    def dispatch_us(self) -> dict[str, float]:
        """Microseconds of a call on nothing, which decides and computes nothing; and of the
        decision and its call: of the smallest shape through the dispatcher, less that of the
        kernel that it takes."""
        import tvm

        def evaluator(name: str) -> Any:
            return self._library.time_evaluator(name, tvm.cpu(), number=2000, repeat=1)

        nothing = [tvm.runtime.tensor(x) for x in operands(self._kind, 0)]
        one = [tvm.runtime.tensor(x) for x in operands(self._kind, 1)]
        empty_s = [evaluator(self._kind)(*nothing).mean for _ in range(_ROUNDS)]
        kernels = self._kernels()
        through, direct = [], []
        for _ in range(_ROUNDS // 2):
            through.append(self._call_s(self._kind, one))
            direct.append(min(self._call_s(f"{self._kind}_kernel{n}", one) for n in kernels))
        return {
            "empty": 1e6 * statistics.median(empty_s),
            "decision": 1e6 * (statistics.median(through) - statistics.median(direct)),
        }

    def _call_s(self, name: str, arguments: Sequence[Any]) -> float:
        import tvm

        evaluator = self._library.time_evaluator(name, tvm.cpu(), number=20, repeat=3)
        return float(evaluator(*arguments).median)

    def _kernels(self) -> list[int]:
        """Numbers of the kernels in the library."""
        names = (f"{self._kind}_kernel{n}" for n in range(_MOST_KERNELS))
        return [n for n, name in enumerate(names) if self._library.implements_function(name)]


def operands(kind: str, size: int) -> tuple[Any, Any, Any]:
    """Inputs and the product, by NumPy."""
    random = np.random.default_rng(size)

    def drawn(*shape: int) -> Any:
        return random.standard_normal(shape, dtype=np.float32)

    if kind == "dense":
        a, b = drawn(16 * size, DEPTH), drawn(DEPTH, WIDTH)
        return a, b, a @ b
    if kind == "scores":
        a, b = drawn(HEADS, size, HIDDEN), drawn(HEADS, size, HIDDEN)
        return a, b, a @ b.swapaxes(1, 2)
    a, b = drawn(HEADS, size, size), drawn(HEADS, size, HIDDEN)
    return a, b, a @ b
