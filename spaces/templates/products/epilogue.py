"""What a program does to the sums of its contraction, for one element of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.ir import rewrite
from spaces.templates.contraction.match import Match, factors
from spaces.templates.contraction.shape import Contraction
from spaces.templates.thread_program import Tensors, find_tensor


class Epilogue:
    """The stage after a contraction, in a program with tensors of its own.

    Args:
        match: the program; its epilogue goes through the result in the result's own order.
        tensors: of the program.
    """

    def __init__(self, match: Match, c: Contraction, tensors: Tensors) -> None:
        self._tensors = tensors
        self._main = match.main
        last = match.stages.last
        self._last = self._main if last is None else match.schedule.get(last)
        self._axes = [self._axis_of(c, dim) for dim in range(c.out_dims)]
        loads = factors(self._main) or []
        self.operands = tuple(self._find(load.source) for load in loads)
        self.result = self._find(self._last.writes[0].source)

    @staticmethod
    def _axis_of(c: Contraction, dim: int) -> int | None:
        return next((i for i, axis in enumerate(c.axes) if axis.out_dim == dim), None)

    def _find(self, buffer: Any) -> Any:
        return find_tensor(self._tensors, buffer)

    def index(self, places: Sequence[Any]) -> list[Any]:
        """The index of an element of the result.

        Args:
            places: a value for each axis of the contraction; of those that are summed over, any.
        """
        kinds = [axis.var.ty.dtype for axis in self._last.iter_vars]
        return [
            rewrite.cast(str(kind), 0 if axis is None else places[axis])
            for kind, axis in zip(kinds, self._axes, strict=False)
        ]

    def value(self, total: Any, places: Sequence[Any]) -> Any:
        """What is stored for a sum in float32."""
        total = rewrite.cast(str(self._main.body.buffer.dtype), total)
        if self._last is self._main:
            return total
        from tvm.ir import TensorLoad
        from tvm_ffi import structural_mutate

        index = self.index(places)
        axes = zip(self._last.iter_vars, index, strict=True)
        source = self._main.body.buffer

        def look(load: Any, mutator: Any) -> Any:
            if load.source.same_as(source):
                return total
            inner = mutator.default_mutate(load)
            return self._find(load.source)[tuple(inner.indices)]

        value = structural_mutate(self._last.body.value, [(TensorLoad, look)])
        return rewrite.substitute(value, [(axis.var, place) for axis, place in axes])
