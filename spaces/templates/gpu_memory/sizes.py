"""Sizes of a program, and places in it, as expressions of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.templates.gpu_memory.program import Group
from spaces.templates.gpu_memory.vectors import multiples


class SymbolicSizes:
    """Sizes where some symbolic dimensions are multiples of a vector.

    Args:
        T: TVM's script.
        kind: the type of indices.

    Attributes:
        symbols: those dimensions, with expressions that show it.
    """

    def __init__(self, T: Any, kind: str, vector: int, symbols: Sequence[Any]) -> None:
        self._t, self._kind = T, kind
        self.symbols = multiples(symbols, vector)

    def number(self, value: Any) -> Any:
        """A number of the type of indices."""
        from tvm import tirx

        known = tvm_compat.as_int(value)
        if known is not None:
            return tirx.const(known, self._kind)
        value = rewrite.substitute(value, self.symbols)
        return value if str(value.ty.dtype) == self._kind else tirx.Cast(self._kind, value)

    def fix(self, expression: Any) -> Any:
        """An expression of sizes, simplified."""
        import tvm

        return tvm.sym.Analyzer().simplify(rewrite.substitute(expression, self.symbols))

    def count(self, groups: Sequence[Group], vector: int) -> Any:
        """Vectors of some groups together, which lie along the last."""
        total: Any = self.number(1)
        for size in self._each(groups, vector):
            total = total * size
        return self.fix(total)

    def _each(self, groups: Sequence[Group], vector: int) -> list[Any]:
        sizes = [self.number(group.extent) for group in groups]
        if sizes:
            sizes[-1] = sizes[-1] // self.number(vector)
        return [self.fix(size) for size in sizes]

    def spread(self, number: Any, groups: Sequence[Group], vector: int) -> dict[Any, Any]:
        """The place in each of several groups of a place in all of them."""
        found: dict[Any, Any] = {}
        sizes = self._each(groups, vector)
        for at in range(len(groups) - 1, -1, -1):
            place = number % sizes[at] if at else number
            number = number // sizes[at] if at else number
            times = vector if at == len(groups) - 1 else 1
            found[groups[at].place] = self._t.Bind(place) * times  # seen to be a multiple
        return found
