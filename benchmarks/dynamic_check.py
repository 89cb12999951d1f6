"""Whether a library with a symbolic dimension is right for every size, and what its decision costs.

Runs in a process of its own (`benchmarks.dynamic` starts it), with the right number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dynamic_programs import DEPTH, HEADS, HIDDEN, WIDTH
from benchmarks.race import aligned
from tuner.dynamic.dispatch_tree import Tree

_RED_ZONE = 1024
_PATTERN = 12345.0
_ROUNDS, _CALLS = 40, 5000


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

    def decision_us(self, tree: Tree, kernels: int) -> float:
        """Microseconds of a call that decides, calls a kernel which does nothing, and returns."""
        import tvm
        from tvm.ir import IRModule

        from benchmarks.dynamic_programs import open_program
        from spaces.deploy.dispatch import make_dispatcher
        from spaces.lowering.plain_shapes import with_plain_shapes

        nothing = tvm.tirx.Evaluate(tvm.tirx.const(0, "int32"))
        # The tree speaks of the dimensions that the tuner sees.
        program = with_plain_shapes(IRModule({"main": open_program(self._kind)}))["main"]
        idle = tvm.tirx.PrimFunc(program.params, nothing, program.ret_type, program.attrs)
        module = IRModule(make_dispatcher("decide", [idle] * kernels, tree))
        library = tvm.compile(module, target=tvm.target.Target({"kind": "llvm"})).mod
        one = [tvm.runtime.tensor(x) for x in operands(self._kind, 1)]
        evaluator = library.time_evaluator("decide", tvm.cpu(), number=_CALLS, repeat=_ROUNDS)
        return 1e6 * float(evaluator(*one).median)


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
