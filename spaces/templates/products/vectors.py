"""Vectors of an operand that a thread reads into registers: the one place that knows how the
elements of operands are encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from spaces.ir import rewrite, tvm_compat
from spaces.ir.element_types import WIDE
from spaces.templates.products.packed import (
    ONES,
    WORD_BYTES,
    Span,
    find_vector,
    read_code,
)
from spaces.templates.products.source import Source

_WORD = "uint32"
_BYTE, _EACH_BYTE = 255, 0x01010101
_COUNT, _SELECTOR = "count_code", 0x7440
_COUNT_CODE = f"""
static __device__ __forceinline__ float {_COUNT}(unsigned codes, unsigned selector) {{
  const unsigned ones = {ONES:#x}u | threadIdx.x << 8;
  return __uint_as_float(__byte_perm(codes, ones, selector));
}}
"""
"""No selector takes the bytes that the thread's number changes: they keep the compiler from having
`ones` within each instruction, and each selector in a register that is copied before."""
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

    def read_scale(self, number: Any) -> Any:
        """What all elements of a vector are multiplied by; None where there is no such."""

    def read_unscaled(self, number: Any, place: Any) -> Any:
        """An element in float32 before it is multiplied by that."""


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
        if width == 1:
            T.buffer_store(self._own, self._source.read(row, term, batch), [number])
            return
        index = self._source.index(row, term, batch)
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

    def read_scale(self, number: Any) -> Any:
        """See `Vectors`: none."""
        return None

    def read_unscaled(self, number: Any, place: Any) -> Any:
        """See `Vectors`."""
        return self.widen(number, place)


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
        self._numbers = {
            variable: (span, own, place)
            for span, own in zip(found.spans, self._spans, strict=True)
            for place, variable in enumerate(span.numbers)
        }
        self._scale, self._unscaled = found.factor()

    def load(self, number: Any, row: Any, term: Any, batch: Mapping[int, Any]) -> None:
        """See `Vectors`."""
        T, source, vector = self._t, self._source, self._vector
        assert source.program is not None
        *front, last = source.index(row, term, batch)
        places = [*front, last // self._width]
        variables = [*self._variables[:-1], vector.number]
        at = [rewrite.bind(*pair) for pair in zip(variables, places, strict=True)]
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
        words = span.load_bytes // WORD_BYTES
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
        return rewrite.cast(self._source.kind, self.widen(number, place))

    def widen(self, number: Any, place: int) -> Any:
        """See `Vectors`: before it is rounded to the type of the operand."""
        return self._compute(number, self._vector.elements[place])

    def read_scale(self, number: Any) -> Any:
        """See `Vectors`."""
        return None if self._scale is None else self._compute(number, self._scale)

    def read_unscaled(self, number: Any, place: int) -> Any:
        """See `Vectors`."""
        return self._compute(number, self._unscaled[place])

    def _compute(self, number: Any, element: Any) -> Any:
        """An expression of a vector's variables."""
        from tvm.ir import Call
        from tvm_ffi import structural_mutate

        def look(call: Any, mutator: Any) -> Any:
            counted = self._count(number, call)
            return mutator.default_mutate(call) if counted is None else counted

        counted = structural_mutate(element, [(Call, look)])
        known = [
            (variable, own[number])
            for (variable, _), own in zip(self._vector.alike, self._alike, strict=True)
        ]
        for variable, (span, own, place) in self._numbers.items():
            first = number * span.registers
            if span.load_bytes:
                word, shift = own[first + place // WORD_BYTES], place % WORD_BYTES * 8
                value = rewrite.cast(str(span.source.dtype), word >> self._t.uint32(shift))
            else:
                value = own[first + place]
            known.append((variable, value))
        return rewrite.substitute(counted, known)

    def _count(self, number: Any, call: Any) -> Any:
        """A code as the last bits of a float, see `spaces.templates.products.packed`: a byte of a
        word, which four codes share; None of anything else, and of bytes in no words."""
        from tvm import tirx

        bits = call.args[0] if call.args else None
        if not isinstance(bits, tirx.BitwiseOr) or tvm_compat.as_int(bits.b) != ONES:
            return None
        code = read_code(bits.a)
        if code is None:
            return None
        byte, shift, mask = code
        span, own, place = self._numbers[byte]
        if not span.load_bytes:
            return None
        T, word = self._t, own[number * span.registers + place // WORD_BYTES]
        if mask < _BYTE:
            word = (word >> T.uint32(shift)) & T.uint32(mask * _EACH_BYTE)
        selector = T.uint32(_SELECTOR + place % WORD_BYTES)
        told = {"source_code": _COUNT_CODE, "return_type": WIDE}
        return T.cuda.func_call(_COUNT, word, selector, **told)


def _name_type(span: Span) -> str:
    """The type of a span's registers."""
    return _WORD if span.load_bytes else str(span.source.dtype)
