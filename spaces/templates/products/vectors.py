"""Vectors of an operand that a thread reads into registers: the one place that knows how the
elements of operands are encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from spaces.ir import rewrite
from spaces.ir.element_types import WIDE
from spaces.templates.products.packed import Span, find_vector
from spaces.templates.products.source import Source

_WORD, _WORD_BITS, _WORD_BYTES = "uint32", 32, 4
_LOAD_CODE = """
static __device__ __forceinline__ void {name}(const void* from, {parameters}) {{
  const {kind} words = *reinterpret_cast<const {kind}*>(from);
  {stores}
}}
"""
_KINDS = {
    1: ("unsigned", ("",)),
    2: ("uint2", (".x", ".y")),
    4: ("uint4", (".x", ".y", ".z", ".w")),
}


class Vectors(Protocol):
    """Vectors of one operand in the registers of a thread, by their numbers."""

    def load(self, number: Any, row: Any, term: Any, batch: Mapping[int, Any]) -> None:
        """Load what begins at a row, or column, and a term."""

    def clear(self, number: Any) -> None:
        """Have one of finite numbers, which are multiplied by zeros."""

    def read(self, number: Any, place: Any) -> Any:
        """An element, in the type of the operand."""

    def widen(self, number: Any, place: Any) -> Any:
        """An element in float32."""


def allocate_vectors(T: Any, source: Source, width: int, count: int) -> Vectors:
    """Make room for vectors of so many elements, which lie next to one another.

    Args:
        T: TVM's script.
        width: a divisor of those of a packed operand's vectors.
    """
    kind = PlainVectors if source.packed is None else PackedVectors
    return kind(T, source, width, count)


class PlainVectors:
    """See `Vectors`: of elements that are in memory as they are."""

    def __init__(self, T: Any, source: Source, width: int, count: int) -> None:
        self._t, self._source, self._width = T, source, width
        self._own = T.alloc_buffer((count * width,), source.kind, scope="local")

    def load(self, number: Any, row: Any, term: Any, batch: Mapping[int, Any]) -> None:
        """See `Vectors`."""
        T, width = self._t, self._width
        index = self._source.index(row, term, batch)
        if width == 1:
            T.buffer_store(self._own, self._source.tensor[tuple(index)], [number])
            return
        index[self._source.dense] = T.ramp(index[self._source.dense], 1, width)
        own = T.ramp(number * width, 1, width)
        T.buffer_store(self._own, self._source.tensor[tuple(index)], [own])

    def clear(self, number: Any) -> None:
        """See `Vectors`: zeros."""
        T, kind = self._t, self._source.kind
        with T.unroll(self._width) as i:
            T.buffer_store(self._own, T.Cast(kind, T.float32(0)), [number * self._width + i])

    def read(self, number: Any, place: Any) -> Any:
        """See `Vectors`."""
        return self._own[number * self._width + place]

    def widen(self, number: Any, place: Any) -> Any:
        """See `Vectors`."""
        return rewrite.cast(WIDE, self.read(number, place))


class PackedVectors:
    """See `Vectors`: of elements that are computed of packed numbers, which registers hold, each
    time that they are read. A place is a number."""

    def __init__(self, T: Any, source: Source, width: int, count: int) -> None:
        assert source.packed is not None
        self._t, self._source, self._width = T, source, width
        self._variables = source.packed.variables
        found = find_vector(source.packed, width)
        assert found is not None
        self._vector = found
        self._alike = [
            T.alloc_buffer((count,), str(variable.ty.dtype), scope="local")
            for variable, _ in found.alike
        ]
        self._spans = [
            T.alloc_buffer((count * span.registers,), _name_type(span), scope="local")
            for span in found.spans
        ]

    def load(self, number: Any, row: Any, term: Any, batch: Mapping[int, Any]) -> None:
        """See `Vectors`."""
        T, source, vector = self._t, self._source, self._vector
        assert source.program is not None
        *front, last = source.index(row, term, batch)
        places = [*front, last // self._width]
        variables = [*self._variables[:-1], vector.number]
        at = [
            (v, rewrite.cast(str(v.ty.dtype), place))
            for v, place in zip(variables, places, strict=True)
        ]
        for (_, value), own in zip(vector.alike, self._alike, strict=True):
            T.buffer_store(own, source.program.fill(value, at), [number])
        for span, own in zip(vector.spans, self._spans, strict=True):
            tensor = source.program.find(span.source)
            index = [rewrite.substitute(i, at) for i in span.index]
            self._load_span(span, tensor, index, own, number * span.registers)

    def _load_span(
        self, span: Span, tensor: Any, index: Sequence[Any], own: Any, first: Any
    ) -> None:
        T, (*front, last) = self._t, index
        if not span.load_bytes:
            for i in range(len(span.numbers)):
                T.buffer_store(own, tensor[(*front, last + i)], [first + i])
            return
        words = span.load_bytes // _WORD_BYTES
        kind, parts = _KINDS[words]
        names = [f"word_{i}" for i in range(words)]
        name = f"load_{words}_words"
        code = _LOAD_CODE.format(
            name=name,
            kind=kind,
            parameters=", ".join(f"unsigned& {word}" for word in names),
            stores=" ".join(f"{n} = words{part};" for n, part in zip(names, parts, strict=True)),
        )
        for piece in range(span.registers // words):
            where = tensor.ptr_to([*front, last + piece * span.load_bytes])
            to = [own[first + piece * words + i] for i in range(words)]
            T.evaluate(T.cuda.func_call(name, where, *to, source_code=code))

    def clear(self, number: Any) -> None:
        """See `Vectors`: what zeros are the codes and scales of."""
        T = self._t
        for own in self._alike:
            T.buffer_store(own, rewrite.cast(str(own.dtype), T.int32(0)), [number])
        for span, own in zip(self._vector.spans, self._spans, strict=True):
            with T.unroll(span.registers) as i:
                zero = rewrite.cast(str(own.dtype), T.int32(0))
                T.buffer_store(own, zero, [number * span.registers + i])

    def read(self, number: Any, place: int) -> Any:
        """See `Vectors`."""
        return rewrite.substitute(self._vector.elements[place], self._find_values(number))

    def widen(self, number: Any, place: int) -> Any:
        """See `Vectors`: before it is rounded to the type of the operand."""
        element = self._vector.elements[place]
        exact = rewrite.uncast(element)
        chosen = exact if str(exact.ty.dtype) == WIDE else element
        return rewrite.cast(WIDE, rewrite.substitute(chosen, self._find_values(number)))

    def _find_values(self, number: Any) -> list[tuple[Any, Any]]:
        """What the variables of elements are."""
        found = [
            (variable, own[number])
            for (variable, _), own in zip(self._vector.alike, self._alike, strict=True)
        ]
        for span, own in zip(self._vector.spans, self._spans, strict=True):
            first = number * span.registers
            for i, variable in enumerate(span.numbers):
                found.append((variable, self._read_number(span, own, first, i)))
        return found

    def _read_number(self, span: Span, own: Any, first: Any, place: int) -> Any:
        if not span.load_bytes:
            return own[first + place]
        each = _WORD_BITS // 8
        shift = self._t.uint32(place % each * 8)
        word = own[first + place // each] >> shift if place % each else own[first + place // each]
        return rewrite.cast(str(span.source.dtype), word)


def _name_type(span: Span) -> str:
    """The type of a span's registers."""
    return _WORD if span.load_bytes else str(span.source.dtype)
