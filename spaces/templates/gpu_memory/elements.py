"""Elements of a program's parameters: how threads load and store them, and compute with them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite
from spaces.templates.gpu_memory.bodies import count_elements, flat_index
from spaces.templates.gpu_memory.program import Part, Read
from spaces.templates.gpu_memory.vectors import width_at

Places = Mapping[Any, Any]
"""For variables that stand for a place, their values; of the one along which vectors lie, where the
vector begins."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a thread has what it read: an array of its own, from an offset on.

    Attributes:
        each: 1 where all elements of a vector are the same one.
        stride: from one element of a vector to the next.
    """

    array: Any
    offset: Any
    each: int
    stride: int = 1

    def element(self, i: Any) -> Any:
        """An element of the vector."""
        return self.array[self.offset + i * self.stride if self.each > 1 else self.offset]


class Elements:
    """The parameters as flat tensors.

    Args:
        T: TVM's script.
        tensors: the parameters, each with the tensor that stands for it.
        along: the variable of the place along which vectors lie.
        symbols: symbolic dimensions with what stands for them.
    """

    def __init__(
        self,
        T: Any,
        tensors: Sequence[tuple[Any, Any]],
        along: Any,
        symbols: Sequence[tuple[Any, Any]],
    ) -> None:
        self._t, self._along, self._symbols = T, along, symbols
        self._flat = [(known, self._flatten(tensor)) for known, tensor in tensors]

    def turn(self, along: Any) -> Elements:
        """The same tensors, with vectors that lie along another place."""
        found = copy.copy(self)
        found._along = along
        return found

    def _flatten(self, tensor: Any) -> Any:
        return self._t.decl_buffer((count_elements(tensor),), str(tensor.dtype), data=tensor.data)

    def _find(self, buffer: Any) -> Any:
        return next(flat for known, flat in self._flat if known.same_as(buffer))

    def load(self, slot: Slot, read: Read, places: Places, width: int) -> None:
        """Load what a vector of a stage reads, if it does."""
        if read.guard is None:
            self._load(slot, read, places, width)
            return
        with self._t.If(self._index(read.guard, places)), self._t.Then():
            self._load(slot, read, places, width)

    def _load(self, slot: Slot, read: Read, places: Places, width: int) -> None:
        T, source = self._t, self._find(read.buffer)
        each = width_at(self._index(read.index, places), width, str(source.dtype))
        if read.growth == 1 and each > 1:
            self._copy(source, read.index, places, slot, (width, each), store=False)
            return
        for i in range(slot.each):
            value = source[self._index(read.index, places, i)]
            T.buffer_store(slot.array, value, [slot.offset + i])

    def store(self, target: Any, index: Any, places: Places, array: Any, width: int) -> None:
        """Store a vector."""
        T, to = self._t, self._find(target)
        import tvm

        growth = rewrite.growth(tvm.sym.Analyzer(), index, self._along)
        each = width_at(self._index(index, places), width, str(to.dtype))
        if growth == 1 and each > 1:
            self._copy(to, index, places, Slot(array, 0, width), (width, each), store=True)
            return
        for i in range(width):
            T.buffer_store(to, array[i], [self._index(index, places, i)])

    def _copy(
        self,
        tensor: Any,
        index: Any,
        places: Places,
        slot: Slot,
        widths: tuple[int, int],
        *,
        store: bool,
    ) -> None:
        """Copy a vector between a tensor and an array.

        Args:
            widths: elements of the vector, and of each access.
        """
        T, (whole, each) = self._t, widths
        for first in range(0, whole, each):
            with T.vectorized(each) as i:
                outside = self._index(index, places, first) + rewrite.constant(1, index) * i
                inside = slot.offset + first + i
                if store:
                    T.buffer_store(tensor, slot.array[inside], [outside])
                else:
                    T.buffer_store(slot.array, tensor[outside], [inside])

    def value(
        self,
        part: Part,
        slots: Mapping[int, Slot],
        results: Sequence[tuple[Any, Any]],
        places: Places,
        i: Any,
    ) -> Any:
        """What a stage computes at an element of a vector.

        Args:
            slots: what was loaded, by the numbers of reads.
            results: tensors of stages before, each with its one element.
        """

        def known(load: Any) -> Any:
            for read in part.reads:
                if load.same_as(read.load):
                    return slots[read.number].element(i)
            return next((value for tensor, value in results if load.source.same_as(tensor)), None)

        return self._place(self._lower(part.body.value, known), places, i)

    def _lower(self, expression: Any, known: Any) -> Any:
        """An expression with loads from flat tensors."""
        from tvm.ir import TensorLoad
        from tvm_ffi import structural_mutate

        def look(load: Any, mutator: Any) -> Any:
            found = known(load)
            if found is not None:
                return found
            index = flat_index(load.source, load.indices)
            return self._find(load.source)[self._lower(index, known)]

        return structural_mutate(expression, [(TensorLoad, look)])

    def _index(self, index: Any, places: Places, i: int = 0) -> Any:
        """A flat index, or a condition, some elements behind the first of a vector."""
        import tvm

        lowered = self._lower(index, lambda _load: None)
        return tvm.sym.Analyzer().simplify(self._place(lowered, places, i))

    def _place(self, expression: Any, places: Places, i: Any) -> Any:
        """An expression at an element of a vector."""
        values = [(place, value) for place, value in places.items()]
        for number, (place, value) in enumerate(values):
            if place.same_as(self._along):
                values[number] = (place, value + rewrite.cast(str(value.ty.dtype), i))
        return rewrite.substitute(expression, [*values, *self._symbols])
