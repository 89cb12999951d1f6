"""Sizes that a graph calculates with: numbers, and expressions of the model's symbols.

Exporters write shapes as computation: `Shape`, `Gather`, `Concat`, then `Reshape`. Whoever imports
such a graph has to know what comes out of it, or no shape after it is known. So small integer
tensors are kept as what they hold, as long as that is known: `Sizes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Size: TypeAlias = Any
"""A Python int or bool, or an expression of TVM in int64."""
SizeArray = npt.NDArray[np.object_]

MOST = 256
"""Elements of a tensor whose values are looked at: more are data."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """A small integer tensor whose values are known.

    Attributes:
        values: of any rank, each a `Size`.
        dtype: of the tensor.
    """

    values: SizeArray
    dtype: str = "int64"

    @property
    def numbers(self) -> bool:
        """Whether no symbol is in it."""
        return all(isinstance(value, int) for value in self.values.flat)

    def flat(self) -> list[Size]:
        """All values in order."""
        return list(self.values.flat)


def sizes_of(values: Iterable[Size], dtype: str = "int64") -> Sizes:
    """A vector of sizes."""
    listed = list(values)
    found = np.empty(len(listed), dtype=object)
    found[:] = listed
    return Sizes(found, dtype)


def read_sizes(array: npt.NDArray[Any]) -> Sizes | None:
    """A constant as sizes; None where it is no small tensor of a type that sizes have."""
    if str(array.dtype) not in ("int64", "int32", "bool") or array.size > MOST:
        return None
    return Sizes(np.array(array.tolist(), dtype=object).reshape(array.shape), str(array.dtype))


class Arithmetic:
    """What can be said of sizes whose symbols are not negative.

    Args:
        symbols: those of the model's inputs; as an attribute their names.
    """

    def __init__(self, symbols: Iterable[Any]) -> None:
        import tvm

        self._analyzer = tvm.sym.Analyzer()
        listed = list(symbols)
        self.symbols = tuple(str(symbol.name) for symbol in listed)
        for symbol in listed:
            self._analyzer.bind(symbol, tvm.ir.Range(0, 1 << 31))

    def simplified(self, sizes: Sizes) -> Sizes:
        """The same, each value as short as it can be written, and a number where it is one."""
        values = np.empty(sizes.values.shape, dtype=object)
        for place in np.ndindex(values.shape):
            values[place] = self.simple(sizes.values[place])
        return Sizes(values, sizes.dtype)

    def simple(self, size: Size) -> Size:
        """A size in its shortest form."""
        from tvm.tirx import IntImm

        if isinstance(size, int | np.integer | np.bool_):
            return size.item() if isinstance(size, np.generic) else size
        found = self._analyzer.simplify(size)
        return int(found.value) if isinstance(found, IntImm) else found

    def equal(self, a: Size, b: Size) -> bool:
        """Whether two sizes are the same for all values of the symbols."""
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        return bool(self._analyzer.can_prove_equal(a, b))

    def always(self, condition: Any) -> bool:
        """Whether a condition holds for all values of the symbols."""
        return condition if isinstance(condition, bool) else self._analyzer.can_prove(condition)

    def product(self, sizes: Iterable[Size]) -> Size:
        """Of all of them; 1 of none."""
        return self.simple(math.prod(sizes))


def shape_expression(sizes: Iterable[Size]) -> Any:
    """A shape of Relax."""
    from tvm import relax, tirx

    return relax.ShapeExpr([tirx.const(s, "int64") if isinstance(s, int) else s for s in sizes])
