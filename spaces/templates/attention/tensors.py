"""The tensors of an attention, in a program with tensors of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.lowering.attention.description import Attention, Axis, Load
from spaces.templates.attention.groups import ALONE, Group
from spaces.templates.products.layout import UNIT
from spaces.templates.products.places import multiply
from spaces.templates.products.source import Source
from spaces.templates.thread_program import Tensors as Known
from spaces.templates.thread_program import find_tensor, narrow

Places = Sequence[tuple[Any, Any]]
"""Values of variables."""


class Tensors:
    """What a program reads and stores, by the places on its axes.

    Args:
        T: TVM's script.
        known: the tensors of the attention, each with the one that stands for it.
        group: heads whose rows, one of each after the other, are the rows of one attention.

    Attributes:
        rows: their number, in 32 bits; `keys`, `columns` and `batches` likewise.
        heads: that have rows next to one another.
    """

    def __init__(self, T: Any, attention: Attention, known: Known, group: Group = ALONE) -> None:
        self._t, self._attention, self._known = T, attention, known
        self._group, self.heads = group, group.heads
        a = attention
        self.rows, self.keys, self.columns = (
            narrow(self._t, axis.extent) for axis in (a.rows, a.keys, a.columns)
        )
        self.rows = self.rows * self.heads
        self.batches = multiply([self._narrow(number) for number in range(len(a.batch))])

    @property
    def sources(self) -> tuple[Source, Source, Source]:
        """Queries, keys and values, each of these a term of the second product."""
        a = self._attention
        return (
            self._source(a.query, a.rows, a.width, turned=False),
            self._source(a.key, a.keys, a.width, turned=False),
            self._source(a.value, a.columns, a.keys, turned=True),
        )

    def spread(self, number: Any) -> list[Any]:
        """The place on each axis of the batch of one of its attentions."""
        T, found = self._t, list[Any]()
        for axis in reversed(range(len(self._attention.batch))):
            extent = self._narrow(axis)
            found.append(T.Bind(number % extent))
            number = number // extent
        return found[::-1]

    def score(self, product: Any, batch: Sequence[Any], row: Any, key: Any) -> Any:
        """What softmax takes for a sum of products in float32."""
        a = self._attention
        places = self._place(batch, (a.rows, row), (a.keys, key))
        return self._write(a.score, [*places, rewrite.bind(a.product, product)])

    def finish(self, total: Any, batch: Sequence[Any], row: Any, column: Any) -> None:
        """Store what the program makes of a sum of values in float32."""
        a = self._attention
        places = self._place(batch, (a.rows, row), (a.columns, column))
        value = self._write(a.result, [*places, rewrite.bind(a.total, total)])
        index = [self._write(i, places) for i in a.place.indices]
        self._t.buffer_store(self._find(a.place.tensor), value, index)

    @property
    def is_safe(self) -> bool:
        """See `Attention.is_safe`."""
        return self._attention.is_safe

    def _source(self, load: Load, row: Axis, term: Axis, *, turned: bool) -> Source:
        def find_index(at: Any, term_at: Any, batch: Mapping[int, Any]) -> list[Any]:
            places = self._place([*batch.values()], (row, at), (term, term_at))
            return [self._write(index, places) for index in load.indices]

        tensor = self._find(load.tensor)
        in_units = starts_in_units(load, row if turned else term)
        size = self.rows if row is self._attention.rows else narrow(self._t, row.extent)
        sizes = (size, narrow(self._t, term.extent))
        return Source(tensor, turned, in_units, *sizes, find_index)

    def _narrow(self, axis: int) -> Any:
        """The extent of an axis of the batch, of which a group of heads is one."""
        extent = narrow(self._t, self._attention.batch[axis].extent)
        return extent // self.heads if axis == self._group.axis else extent

    def _place(self, batch: Sequence[Any], *others: tuple[Axis, Any]) -> Places:
        """Values of the axes' variables; what looks at no row is the same for a group's heads."""
        places, head = dict[Any, Any](), 0
        for axis, place in others:
            if axis is self._attention.rows and self.heads > 1:
                head, place = place % self.heads, place // self.heads
            places[axis.var] = place
        for number, (axis, place) in enumerate(zip(self._attention.batch, batch, strict=True)):
            is_group = number == self._group.axis and self.heads > 1
            places[axis.var] = place * self.heads + head if is_group else place
        return [rewrite.bind(variable, place) for variable, place in places.items()]

    def _find(self, tensor: Any) -> Any:
        return find_tensor(self._known, tensor)

    def _write(self, value: Any, places: Places) -> Any:
        """An expression of this program's tensors, at some places."""
        from tvm.ir import TensorLoad
        from tvm_ffi import structural_mutate

        def look(load: Any, mutator: Any) -> Any:
            return self._find(load.source)[tuple(mutator.default_mutate(load).indices)]

        if isinstance(value, int):
            return value
        return rewrite.substitute(structural_mutate(value, [(TensorLoad, look)]), places)


def starts_in_units(load: Load, dense: Axis) -> bool:
    """Whether what lies next to one another along an axis begins at multiples of 16 bytes."""
    from tvm import sym

    each = UNIT * 8 // tvm_compat.element_bits(load.tensor.dtype)
    *_, size = load.tensor.shape
    first = rewrite.substitute(load.indices[-1], [(dense.var, rewrite.constant(0, dense.var))])
    whole = [tvm_compat.as_int(sym.Analyzer().simplify(x % each)) == 0 for x in (first, size)]
    return all(whole) or (whole[0] and len(load.tensor.shape) == 1)
