"""Floats of 4-bit codes, looked up in a vector of all sixteen.

A code becomes a float in three steps: it is cut out of its byte, converted, and its middle is taken
off. `vpermps` of AVX-512 looks sixteen codes up at once, each by the lowest four bits of its lane:
what is above them need not be cut off, and the middle is taken off the table. Where four bytes of a
lane lie next to one another, a word holds eight of its codes, each a shift away. The floats are the
same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.passes.dots.steps import find_growth, read_words, span_region

BITS = 4
LANES = 1 << BITS
"""Of a vector that is looked up: as many as there are codes."""
BYTES = 4
"""Of a word of codes."""
_VECTORISED = 2
_BYTE, _WORD, _REAL = "uint8", "int32", "float32"
_PERMUTE = "llvm.x86.avx512.permvar.sf.512"


def with_code_tables(function: Any) -> Any:
    """A scheduled PrimFunc that looks up vectors of sixteen such codes; the same where it is bound
    to a target without the instruction."""
    from tvm import tirx
    from tvm.sym import Analyzer
    from tvm_ffi import structural_mutate

    target = tvm_compat.attribute(function, "target")
    if target is not None and not tvm_compat.has_cpu_feature(target, "avx512f"):
        return function
    analyzer = Analyzer()

    def loop(node: Any, mutator: Any) -> Any:
        if tvm_compat.as_int(node.extent) is not None:
            rewrite.bind_loop(analyzer, node)
        vector = _Vector(node, analyzer) if _stores_one_value(node) else None
        written = None if vector is None else vector.write()
        return mutator.default_mutate(node) if written is None else written

    body = structural_mutate(function.body, [(tirx.For, loop)])
    return function if body.same_as(function.body) else function.with_body(body)


def _stores_one_value(loop: Any) -> bool:
    """Whether a loop is a vector of sixteen lanes, and each stores one value on no condition."""
    from tvm import s_tir, tirx

    realize = loop.body
    if int(loop.kind) != _VECTORISED or tvm_compat.as_int(loop.extent) != LANES:
        return False
    if not isinstance(realize, s_tir.SBlockRealize) or realize.block.init is not None:
        return False
    whole = tvm_compat.as_int(realize.predicate) == 1
    return whole and isinstance(realize.block.body, tirx.BufferStore)


class _NoVector(Exception):
    """An expression is not one of those that are written as vectors here."""


@dataclass(frozen=True, slots=True)
class _Code:
    """A code: the lowest bits of a byte, once that is shifted to the right.

    Attributes:
        load: of the byte.
    """

    load: Any
    shift: Any


@dataclass
class _Vector:
    """A loop over lanes, to be written as expressions of vectors.

    Attributes:
        looked_up: whether codes were among them.
    """

    loop: Any
    analyzer: Any
    looked_up: bool = False

    def write(self) -> Any:
        """The block that stores all lanes; None where no codes are looked up in it."""
        from tvm import s_tir, tirx

        realize = self.loop.body
        store = realize.block.body
        place = [rewrite.place_in_loops(realize, index) for index in store.indices]
        try:
            value = self._of(rewrite.place_in_loops(realize, store.value))
            where = self._ramp(store.buffer, place)
        except _NoVector:
            return None
        if not self.looked_up:
            return None
        reads = [self._widen(realize, region) for region in realize.block.reads]
        writes = [self._widen(realize, region) for region in realize.block.writes]
        name = str(realize.block.name_hint)
        body = tirx.BufferStore(store.buffer, value, where)
        return s_tir.SBlockRealize([], True, s_tir.SBlock([], reads, writes, name, body))

    def _of(self, scalar: Any) -> Any:
        """The vector of what an expression is in each lane."""
        from tvm import tirx
        from tvm.ir import TensorLoad

        if not self._moves(scalar):
            return tirx.Broadcast(scalar, LANES)
        if (found := self._look_up(scalar)) is not None:
            self.looked_up = True
            return found
        if isinstance(scalar, TensorLoad):
            place = self._ramp(scalar.source, list(scalar.indices))
            return scalar.source[tuple(place)]
        if isinstance(scalar, tirx.Cast):
            return tirx.Cast(f"{scalar.ty.dtype}x{LANES}", self._of(scalar.value))
        if isinstance(scalar, tirx.Select) and not self._moves(scalar.condition):
            chosen = self._of(scalar.true_value), self._of(scalar.false_value)
            return tirx.Select(scalar.condition, *chosen)
        if isinstance(scalar, (tirx.Add, tirx.Sub, tirx.Mul, tirx.BitwiseAnd, tirx.RShift)):
            return type(scalar)(self._of(scalar.a), self._of(scalar.b))
        raise _NoVector

    def _moves(self, scalar: Any) -> bool:
        return rewrite.uses(scalar, [self.loop.loop_var])

    def _ramp(self, tensor: Any, place: list[Any]) -> list[Any]:
        """The indices of all lanes, which lie next to one another."""
        from tvm.tirx import Ramp

        if self._grow(tensor, place) != 1:
            raise _NoVector
        *front, first = self._at(place, 0)
        return [*front, Ramp(first, rewrite.constant(1, first), LANES)]

    def _grow(self, tensor: Any, place: list[Any]) -> int | None:
        """The distance of what two lanes next to one another access along a tensor's last
        dimension; None where it is not one, or they differ in another."""
        from tvm.tirx import BufferLoad

        simple = [self.analyzer.simplify(index) for index in place]
        if any(map(self._moves, simple[:-1])):
            return None
        return find_growth(BufferLoad(tensor, simple), [self.loop.loop_var], self.analyzer)[0]

    def _at(self, place: list[Any], lane: int) -> list[Any]:
        step = [(self.loop.loop_var, rewrite.constant(lane, self.loop.loop_var))]
        return [self.analyzer.simplify(rewrite.substitute(index, step)) for index in place]

    def _widen(self, realize: Any, region: Any) -> Any:
        """The region that all lanes access, of one that each does."""
        place = [rewrite.place_in_loops(realize, part.min) for part in region.region]
        first, last = self._at(place, 0), self._at(place, LANES - 1)
        return span_region(region.source, first, last, self.analyzer)

    def _look_up(self, scalar: Any) -> Any:
        """The floats of codes, less a constant; None where an expression is nothing such."""
        from tvm import tirx

        middle = tirx.const(0.0, _REAL)
        if isinstance(scalar, tirx.Sub) and isinstance(scalar.b, tirx.FloatImm):
            scalar, middle = scalar.a, scalar.b
        if not isinstance(scalar, tirx.Cast) or str(scalar.ty.dtype) != _REAL:
            return None
        code = _read_code(scalar.value)
        words = None if code is None else self._read_words(code)
        if words is None:
            return None
        kind = f"{_REAL}x{LANES}"
        numbers = tirx.Cast(kind, tirx.Ramp(tirx.const(0, _WORD), tirx.const(1, _WORD), LANES))
        table = numbers - tirx.Broadcast(middle, LANES)
        return tirx.call_llvm_pure_intrin(kind, _PERMUTE, table, words)

    def _read_words(self, code: _Code) -> Any:
        """The words of a code of each lane, shifted until it is the lowest; None where the bytes of
        a lane do not lie next to one another, or lanes take other codes of theirs."""
        from tvm import tirx

        place = list(code.load.indices)
        if self._moves(code.shift) or self._grow(code.load.source, place) != BYTES:
            return None
        *front, first = self._at(place, 0)
        byte = tirx.floormod(first, rewrite.constant(BYTES, first))
        begin = self.analyzer.simplify(first - byte)
        words = read_words(code.load.source, [*front, begin], LANES, BYTES)
        shift = tirx.Cast(_WORD, byte) * tirx.const(8, _WORD) + code.shift
        return tirx.RShift(words, tirx.Broadcast(self.analyzer.simplify(shift), LANES))


def _read_code(value: Any) -> _Code | None:
    """The code that an integer is, if it is taken from a byte as
    `spaces.lowering.weights.codes.take_code` does; None where it is something else."""
    from tvm import tirx
    from tvm_ffi import structural_equal

    if isinstance(value, tirx.Select):
        one, other = _read_code(value.true_value), _read_code(value.false_value)
        if one is None or other is None or not structural_equal(one.load, other.load):
            return None
        return _Code(one.load, tirx.Select(value.condition, one.shift, other.shift))
    wanted = {tirx.BitwiseAnd: (LANES - 1, 0), tirx.RShift: (BITS, BITS)}
    number, shift = wanted.get(type(value), (None, 0))
    if number is None or tvm_compat.as_int(value.b) != number:
        return None
    load = _read_byte(value.a)
    return None if load is None else _Code(load, tirx.const(shift, _WORD))


def _read_byte(word: Any) -> Any:
    """The load of the byte that a word is; None where it is something else."""
    from tvm import tirx
    from tvm.ir import TensorLoad

    if not isinstance(word, tirx.Cast) or str(word.ty.dtype) != _WORD:
        return None
    load = word.value
    return load if isinstance(load, TensorLoad) and str(load.ty.dtype) == _BYTE else None
