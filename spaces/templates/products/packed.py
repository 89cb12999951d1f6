"""Operands of a product that a stage of its program makes of packed numbers, such as codes of a few
bits with a scale for each block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.ir.element_types import WIDE
from spaces.templates.contraction.weights import count_packed_bits

_WIDTHS = (32, 16, 8, 4, 2)
_MOST_BYTES = 16
"""Of one load."""
_MOST_REGISTERS = 8
"""That a vector is loaded into."""
WORD_BYTES = 4
"""Of a register."""
ONES, _FIRST = 0x4B000000, float(1 << 23)
"""Bits that make a whole number below `_FIRST` the float32 that is larger by that."""


@dataclass(frozen=True, slots=True)
class Packed:
    """What an operand is made of.

    Attributes:
        tensor: stands for the operand, and is none of the program's; its dimensions are in the
            order in which those of the codes lie.
        variables: the place in each of its dimensions.
        value: an element, an expression of these and of the program's parameters.
        bits: that are read for each element.
    """

    tensor: Any
    variables: tuple[Any, ...]
    value: Any
    bits: float


@dataclass(frozen=True, slots=True)
class Span:
    """What a vector needs of a tensor from which its elements have other numbers.

    Attributes:
        source: the tensor.
        index: of the first number; the others follow it in memory.
        numbers: a variable for each.
        alignment: bytes of which the address of the first is a multiple.
    """

    source: Any
    index: tuple[Any, ...]
    numbers: tuple[Any, ...]
    alignment: int

    @property
    def item(self) -> int:
        """Bytes of a number."""
        return tvm_compat.element_bits(self.source.dtype) // 8

    @property
    def load_bytes(self) -> int:
        """Of each load of whole words; 0 where numbers are loaded one by one."""
        found = gcd(len(self.numbers) * self.item, self.alignment, _MOST_BYTES)
        return found if found >= WORD_BYTES and self.item == 1 else 0

    @property
    def registers(self) -> int:
        each = WORD_BYTES if self.load_bytes else 1
        return -(-len(self.numbers) // each)


@dataclass(frozen=True, slots=True)
class Vector:
    """How elements that follow one another are made.

    Attributes:
        number: the variable of the vector's number along the last dimension.
        alike: variables of what is the same for all elements, each with what it is.
        spans: what differs.
        elements: an expression of each element in float32, of the variables of both.
    """

    number: Any
    alike: tuple[tuple[Any, Any], ...]
    spans: tuple[Span, ...]
    elements: tuple[Any, ...]

    def factor(self) -> tuple[Any, tuple[Any, ...]]:
        """The variable that all elements are multiplied by, and what of each; None and the elements
        where there is no such."""
        from tvm import tirx

        for variable, _ in self.alike:
            if all(isinstance(e, tirx.Mul) and e.b.same_as(variable) for e in self.elements):
                return variable, tuple(element.a for element in self.elements)
        return None, self.elements

    @property
    def registers(self) -> int:
        """That it is loaded into."""
        return len(self.alike) + sum(span.registers for span in self.spans)


def read_packed(stage: Any, parameters: Sequence[Any]) -> tuple[Packed, tuple[int, ...]] | None:
    """What a stage makes an operand of, and the operand's dimensions in the order of its codes;
    None where these have no fewer bits than the operand, or anything else is read.

    Args:
        parameters: of the program.
    """
    from tvm import tirx

    bits = count_packed_bits(stage, parameters)
    body, axes = stage.body, [axis.var for axis in stage.iter_vars]
    alone = len(body.indices) == len(axes) and all(
        index.same_as(axis) for index, axis in zip(body.indices, axes, strict=True)
    )
    if bits is None or not alone:
        return None
    order = _order_dims(stage, axes)
    shape = tvm_compat.param_shape(body.buffer) or []
    sizes = [int(shape[dim]) for dim in order]
    tensor = tirx.decl_buffer(sizes, str(body.buffer.dtype), "packed")
    value = _count_in_floats(body.value)
    return Packed(tensor, tuple(axes[dim] for dim in order), value, bits), order


def find_width(packed: Packed) -> int:
    """Elements along the last dimension that a thread makes of what it loads at once, at most; they
    begin at multiples of it."""
    size = int(packed.tensor.shape[-1])
    wide = (w for w in _WIDTHS if size % w == 0 and find_vector(packed, w) is not None)
    return next(wide, 1)


def find_vector(packed: Packed, width: int) -> Vector | None:
    """How vectors of so many elements are made; None where it takes too many registers."""
    found = _Reader(packed, width).read()
    return found if found.registers <= _MOST_REGISTERS else None


def _order_dims(stage: Any, axes: Sequence[Any]) -> tuple[int, ...]:
    """The dimensions of what a stage writes in the order in which they lie in most of what it
    reads."""

    def count_bits(region: Any) -> int:
        shape = tvm_compat.param_shape(region.source) or []
        return prod(map(int, shape)) * tvm_compat.element_bits(region.source.dtype)

    codes = max(stage.reads, key=count_bits)
    found = [
        dim
        for part in codes.region
        for dim, axis in enumerate(axes)
        if rewrite.uses(part.min, [axis])
    ]
    every = [*range(len(axes))]
    return tuple(found if sorted(found) == every else every)


class _Reader:
    """Finds out how a vector is made."""

    def __init__(self, packed: Packed, width: int) -> None:
        from tvm import sym, tirx
        from tvm.ir import Range

        self._packed, self._width = packed, width
        *front, self._last = packed.variables
        self._number, self._inside = (tirx.Var(n, self._last.ty) for n in ("number", "inside"))
        *sizes, size = (int(size) for size in packed.tensor.shape)
        ranges = [*zip(front, sizes, strict=True)]
        ranges += [(self._number, size // width), (self._inside, width)]
        self._analyzer = sym.Analyzer()
        for variable, extent in ranges:
            self._analyzer.bind(variable, Range(0, rewrite.constant(extent, variable)))
        self._alike: list[tuple[Any, Any]] = []
        self._spans: list[tuple[Any, dict[int, Any]]] = []

    def read(self) -> Vector:
        """See `find_vector`."""
        from tvm.ir import Expr
        from tvm_ffi import structural_mutate

        value = structural_mutate(self._packed.value, [(Expr, self._split)])
        elements = [self._take(value, i) for i in range(self._width)]
        spans = tuple(self._read_span(*span) for span in self._spans)
        exact = tuple(map(_widen, elements))
        return Vector(self._number, tuple(self._alike), spans, exact)

    def _place(self, expression: Any, at: Any) -> Any:
        """An expression at a place of a vector."""
        last = self._number * self._width + at
        return self._analyzer.simplify(rewrite.substitute(expression, [(self._last, last)]))

    def _split(self, node: Any, mutator: Any) -> Any:
        """A part of the value, with variables for what is the same for all elements."""
        from tvm.ir import TensorLoad

        if not rewrite.reads(node):
            return node
        placed = self._place(node, self._inside)
        if rewrite.uses(placed, [self._inside]):
            return node if isinstance(node, TensorLoad) else mutator.default_mutate(node)
        return self._keep(placed)

    def _keep(self, placed: Any) -> Any:
        """The variable of what is computed once."""
        import tvm_ffi
        from tvm import tirx

        for variable, known in self._alike:
            if tvm_ffi.structural_equal(known, placed):
                return variable
        self._alike.append((tirx.Var(f"alike_{len(self._alike)}", placed.ty), placed))
        return self._alike[-1][0]

    def _take(self, value: Any, place: int) -> Any:
        """An element with variables for the numbers that it has from tensors; or one for all of it,
        where only a run knows which numbers these are."""
        from tvm.ir import TensorLoad
        from tvm_ffi import structural_mutate

        element, lost = self._place(value, place), list[Any]()

        def look(load: Any, mutator: Any) -> Any:
            found = self._find_number(load)
            if found is None:
                lost.append(load)
            return load if found is None else found

        taken = structural_mutate(element, [(TensorLoad, look)])
        if lost or rewrite.uses(taken, [self._number]):
            return self._keep(self._place(self._packed.value, place))
        return taken

    def _find_number(self, load: Any) -> Any:
        """The variable of a number of a tensor; None where only a run knows which one it is."""
        from tvm import tirx

        if any(rewrite.reads(index) for index in load.indices):
            return None
        for first, known in self._spans:
            if first.source.same_as(load.source):
                behind = self._analyzer.simplify(_flatten(load) - _flatten(first))
                place = tvm_compat.as_int(behind)
                if place is None or place < 0:
                    return None
                return known.setdefault(place, tirx.Var(f"number_{place}", load.ty))
        self._spans.append((load, {0: tirx.Var("number_0", load.ty)}))
        return self._spans[-1][1][0]

    def _read_span(self, first: Any, known: dict[int, Any]) -> Span:
        from tvm import tirx

        item = tvm_compat.element_bits(first.source.dtype) // 8
        every = range(max(known) + 1)
        numbers = (known[i] if i in known else tirx.Var("none", first.ty) for i in every)
        found = self._analyzer.modular_set(_flatten(first))
        alignment = item * gcd(int(found.coeff), int(found.base)) or _MOST_BYTES
        return Span(first.source, tuple(first.indices), tuple(numbers), alignment)


def _widen(element: Any) -> Any:
    """An element in float32, not rounded to the operand's type where it was computed in that."""
    from tvm import tirx

    while isinstance(element, tirx.Cast) and str(element.value.ty.dtype) == WIDE:
        element = element.value
    return rewrite.cast(WIDE, element)


def read_code(bits: Any) -> tuple[Any, int, int] | None:
    """Of an expression that takes a code out of a byte: the variable of the byte, how far it is
    shifted to the right, and the mask of what is then taken; None of any other."""
    from tvm import tirx

    mask, shift = 255, 0
    if isinstance(bits, tirx.BitwiseAnd) and (known := tvm_compat.as_int(bits.b)) is not None:
        mask, bits = known, bits.a
    if isinstance(bits, tirx.RShift) and (known := tvm_compat.as_int(bits.b)) is not None:
        shift, bits = known, bits.a
    byte = rewrite.uncast(bits)
    if not isinstance(byte, tirx.Var) or str(byte.ty.dtype) != "uint8":
        return None
    return byte, shift, mask & (255 >> shift)


def _flatten(load: Any) -> Any:
    """Where an element lies, in elements."""
    place: Any = 0
    for index, size in zip(load.indices, load.source.shape, strict=True):
        place = place * size + index
    return place


def _count_in_floats(value: Any) -> Any:
    """A value that is computed of codes without conversions to floats, which are slow: such codes
    become the last bits of a float, of which the first number with these bits is taken away."""
    from tvm import sym, tirx
    from tvm_ffi import structural_mutate

    analyzer = sym.Analyzer()

    def is_code(node: Any) -> bool:
        if not isinstance(node, tirx.Cast) or str(node.ty.dtype) != WIDE:
            return False
        if "int" not in str(node.value.ty.dtype):
            return False
        bound = analyzer.const_int_bound(node.value)
        return bool(bound.min_value >= 0 and bound.max_value < _FIRST)

    def read_bits(code: Any) -> Any:
        bits = rewrite.cast("int32", code.value) | tirx.const(ONES, "int32")
        return tirx.reinterpret(WIDE, bits)

    def subtract(node: Any, mutator: Any) -> Any:
        if not is_code(node.a):
            return mutator.default_mutate(node)
        if is_code(node.b):
            return read_bits(node.a) - read_bits(node.b)
        less = node.b.value if isinstance(node.b, tirx.FloatImm) else 0.5
        if float(less).is_integer() and 0 <= less < _FIRST:
            return read_bits(node.a) - tirx.const(_FIRST + less, WIDE)
        return mutator.default_mutate(node)

    def convert(node: Any, mutator: Any) -> Any:
        if not is_code(node):
            return mutator.default_mutate(node)
        return read_bits(node) - tirx.const(_FIRST, WIDE)

    return structural_mutate(value, [(tirx.Sub, subtract), (tirx.Cast, convert)])
