"""What a program does to the sums of its contraction, for one element of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.ir import rewrite
from spaces.templates.contraction.match import Match
from spaces.templates.contraction.shape import Contraction
from spaces.templates.products.layout import result_window
from spaces.templates.products.windows import find_sources
from spaces.templates.thread_program import Tensors, find_tensor


class Epilogue:
    """The stage after a contraction, in a program with tensors of its own.

    Args:
        match: the program; its epilogue goes through the result in the result's own order.
        tensors: of the program.

    Attributes:
        operands: of the contraction, each with what it is made of if it is packed; see
            `spaces.templates.products.windows.Reading`.
    """

    def __init__(self, match: Match, c: Contraction, tensors: Tensors) -> None:
        self._tensors = tensors
        self._main = match.main
        last = match.stages.last
        self._last = self._main if last is None else match.schedule.get(last)
        self._window = result_window(c)
        self.operands = [
            (self.find(source) if packed is None else source, packed)
            for source, packed in find_sources(match)
        ]
        self.result = self.find(self._last.writes[0].source)

    def find(self, buffer: Any) -> Any:
        """The tensor that stands for a parameter."""
        return find_tensor(self._tensors, buffer)

    def index(self, places: Sequence[Any]) -> list[Any]:
        """The index of an element of the result.

        Args:
            places: a value for each axis of the contraction; of those that are summed over, any.
        """
        kinds = [axis.var.ty.dtype for axis in self._last.iter_vars]
        return [
            rewrite.cast(str(kind), index.at(dict(enumerate(places))))
            for kind, index in zip(kinds, self._window, strict=False)
        ]

    def value(self, total: Any, places: Sequence[Any]) -> Any:
        """What is stored for a sum in float32."""
        total = rewrite.cast(str(self._main.body.buffer.dtype), total)
        if self._last is self._main:
            return total
        axes = zip(self._last.iter_vars, self.index(places), strict=True)
        return self.fill(self._last.body.value, [(axis.var, at) for axis, at in axes], total)

    def fill(self, value: Any, at: Sequence[tuple[Any, Any]], total: Any = None) -> Any:
        """An expression of the program, of its parameters, in terms of the tensors that stand for
        these.

        Args:
            at: values of variables.
            total: what stands for a sum, if it has one.
        """
        from tvm.ir import TensorLoad
        from tvm_ffi import structural_mutate

        def look(load: Any, mutator: Any) -> Any:
            if load.source.same_as(self._main.body.buffer):
                return total
            inner = mutator.default_mutate(load)
            return self.find(load.source)[tuple(inner.indices)]

        return rewrite.substitute(structural_mutate(value, [(TensorLoad, look)]), at)
