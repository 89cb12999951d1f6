"""Symbolic dimensions for those who write programs in Python."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from tuner.checks import LARGEST
from tuner.dynamic.shapes import Domain, shape_text
from tuner.errors import TunerError
from tuner.task import Instance


class ShapeVar:
    """A dimension known only when the program runs, and the sizes that it is tuned for.

    It stands wherever TVM takes a dimension: `te.placeholder((16 * T, 768))`, as in the DietCode
    RFC, or `relax.TensorType((T, 64), "float32")`. `T + 3`, `T - 1` and `T // 2` work too; see
    `tuner.dynamic.derived_names` for what becomes of these.

    Args:
        name: as people will see it, and as `--dim` names it.
        values: sizes to be fast for; any other is computed as well. May be empty where `--dim`
            will give them.

    Raises:
        TunerError: the name is no identifier, or a size is none.
    """

    def __init__(self, name: str, values: Iterable[int] = (), dtype: str = "int64") -> None:
        from tvm.tirx import Var

        if not name.isidentifier():
            raise TunerError(f"{name!r} cannot be the name of a dimension")
        self.name = name
        sizes: list[Any] = list(values)
        for size in sizes:
            if not isinstance(size, Integral) or not 1 <= int(size) <= LARGEST:
                raise TunerError(f"dimension {name} cannot have the size {size}")
        self.values = tuple(sorted({int(size) for size in sizes}))
        self.var = Var(name, dtype)

    def __tvm_ffi_object__(self) -> Any:
        """What TVM takes it for."""
        return self.var

    def __add__(self, other: Any) -> Any:
        return self.var + _plain(other)

    def __radd__(self, other: Any) -> Any:
        return _plain(other) + self.var

    def __sub__(self, other: Any) -> Any:
        return self.var - _plain(other)

    def __rsub__(self, other: Any) -> Any:
        return _plain(other) - self.var

    def __mul__(self, other: Any) -> Any:
        return self.var * _plain(other)

    def __rmul__(self, other: Any) -> Any:
        return _plain(other) * self.var

    def __floordiv__(self, other: Any) -> Any:
        return self.var // _plain(other)

    def __repr__(self) -> str:
        return f"ShapeVar({self.name!r})"


def _plain(other: Any) -> Any:
    return other.var if isinstance(other, ShapeVar) else other


@dataclass(frozen=True, slots=True)
class DynamicProgram:
    """A program with the dimensions that stay symbolic in it: what a model's function may return.

    Attributes:
        program: a PrimFunc or an IRModule.
        shape_vars: its dimensions, each with its values.
        weights: of instances, by the values of the dimensions in the order of `shape_vars`; empty
            weighs all combinations alike.
    """

    program: Any
    shape_vars: Sequence[ShapeVar]
    weights: Mapping[tuple[int, ...], float] | None = None

    def domain(self) -> Domain:
        """The sizes that it is tuned for: of those dimensions that have any.

        Raises:
            TunerError: a weight has not a value for each dimension, or is no number above zero.
        """
        dims = tuple((var.name, var.values) for var in self.shape_vars if var.values)
        return Domain(dims, None if self.weights is None else self._weights(self.weights))

    def _weights(self, weights: Mapping[tuple[int, ...], float]) -> dict[Instance, float]:
        found: dict[Instance, float] = {}
        for values, weight in weights.items():
            if len(values) != len(self.shape_vars):
                raise TunerError(f"weights: {values} has not a value for each dimension")
            pairs = zip(self.shape_vars, values, strict=True)
            instance = tuple(sorted((var.name, value) for var, value in pairs))
            if not 0 < weight < math.inf:
                raise TunerError(f"weights: that of {shape_text(instance)} must be above 0")
            found[instance] = float(weight)
        return found
