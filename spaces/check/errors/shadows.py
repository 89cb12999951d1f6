"""Tensors kept beside those of a running program, to bound the errors of their elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.element_types import eps_of

_SUMS = 2.0
"""Factor in the bound of a sum whose order is not known, see `spaces.check.error_bounds`."""
_UNDERFLOWS = 2e-19
"""The size of terms below which their squares underflow in float32, or nearly do."""
_SMALL = ("float16", "bfloat16", "float8")
_LONG = 1 << 15
"""The number of terms from which on a sum in float32, added up one by one, may lose more by always
rounding the same way than by roundings that are independent."""


class Unbounded(Exception):
    """The program does something whose errors are not known."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """The tensors kept beside a tensor whose elements may have errors.

    Attributes:
        drift: the errors of its elements, except those from the order of a sum.
        squares: for a sum, the sum of its terms' squares; else None.
        exact: for a sum in a small type, or of very many terms, the same sum in a wide one; else
            None.
        terms: number of terms of the longest sum.
        roughness: rounding of one term, relative to its size.
        eps: eps of the type that sums are accumulated in.
    """

    drift: Any
    squares: Any = None
    exact: Any = None
    terms: int = 0
    roughness: float = 0.0
    eps: float = 0.0

    @property
    def tensors(self) -> list[Any]:
        """The tensors that exist, in order."""
        return [t for t in (self.drift, self.squares, self.exact) if t is not None]

    def bound(self, total: Any, parts: Sequence[Any], sqrt: Any, size: Any) -> Any:
        """The bound of an element, or of all.

        Args:
            total: value of the element.
            parts: values of `tensors` at that element, in their order.
            sqrt: function that takes the square root of such a value; `size` its absolute value.
        """
        drift, *others = parts
        if not others:
            return drift
        squares, *exact = others
        order = sqrt((total * total * (1 / 3) + squares * (1 / 6)) * float(self.terms))
        tiny = _UNDERFLOWS * self.terms * (self.eps + self.roughness)
        whole = drift + order * (_SUMS * self.eps) + tiny
        if self.roughness:
            whole = whole + sqrt(squares * float(self.terms)) * self.roughness
        return whole + size(exact[0] - total) * 2.0 if exact else whole


@dataclass
class State:
    """The facts about tensors found so far; they grow until nothing changes."""

    wide: str
    shadows: dict[int, Shadow] = field(default_factory=dict)
    integral: dict[int, bool] = field(default_factory=dict)
    changed: bool = False

    def of(self, tensor: Any) -> Shadow | None:
        return self.shadows.get(hash(tensor))

    def drifts(self, tensor: Any) -> Shadow:
        """The shadow of a tensor, made where it has none."""
        known = self.of(tensor)
        if known is None:
            known = self._put(tensor, Shadow(self._like(tensor, "drift")))
        return known

    def sums(self, tensor: Any, terms: int, roughness: float) -> Shadow:
        """The shadow of a tensor that accumulates a sum."""
        known = self.drifts(tensor)
        squares = known.squares if known.squares is not None else self._like(tensor, "squares")
        exact = known.exact
        dtype = tvm_compat.param_dtype(tensor)
        if exact is None and (dtype.startswith(_SMALL) or self._is_long(dtype, terms)):
            exact = self._like(tensor, "exact")
        most = max(terms, known.terms), max(roughness, known.roughness)
        if known.squares is not None and most == (known.terms, known.roughness):
            return known
        return self._put(tensor, Shadow(known.drift, squares, exact, *most, eps_of(dtype)))

    @property
    def has_long_sums(self) -> bool:
        """Whether a sum has so many terms that it must be added up in a wide type as well."""
        return any(shadow.terms >= _LONG for shadow in self.shadows.values())

    def _is_long(self, dtype: str, terms: int) -> bool:
        return terms >= _LONG and dtype != self.wide

    def _put(self, tensor: Any, shadow: Shadow) -> Shadow:
        self.shadows[hash(tensor)] = shadow
        self.changed = True
        return shadow

    def _like(self, tensor: Any, what: str) -> Any:
        from tvm.tirx import decl_buffer

        return decl_buffer(tvm_compat.param_dims(tensor), self.wide, f"{tensor.name}_{what}")


def number(value: float, state: State) -> Any:
    """A constant of the type of bounds."""
    from tvm.tirx import const

    return const(value, state.wide)


def load_of(tensor: Any, indices: Any) -> Any:
    """An element of a tensor."""
    from tvm.tirx import BufferLoad

    return BufferLoad(tensor, list(indices))
