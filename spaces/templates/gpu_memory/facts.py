"""What estimates need to know of a program: its sizes in each shape, and how its stages read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from spaces.ir import rewrite, tvm_compat
from spaces.templates.gpu_memory.bodies import count_elements
from spaces.templates.gpu_memory.program import Part, Program, Walk
from spaces.templates.gpu_memory.vectors import (
    BYTES,
    WIDTHS,
    is_whole,
    multiples,
    open_sizes,
    width_at,
)
from spaces.templates.memory.shapes import Sizes


@dataclass(frozen=True, slots=True)
class ReadFacts:
    """A read.

    Attributes:
        bytes: of an element.
        growth: of the index with each element of a vector; None where it varies.
        is_shared: whether several stages read it; `is_first` whether this one is the first.
        is_turned: whether it is read in order along the other side of a tile.
        widths: elements of an access, for each size of a vector.
    """

    bytes: int
    growth: int | None
    is_shared: bool
    is_first: bool
    is_turned: bool
    widths: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class PartFacts:
    """A stage.

    Attributes:
        reads: what it reads in vectors; `others` is the number of other reads.
        heavy: operations that take much longer than an addition.
        out_bytes: of an element that it writes; 0 where it writes no parameter.
        widths: elements of a store, for each size of a vector.
    """

    reads: tuple[ReadFacts, ...]
    others: int
    reduces: bool
    heavy: int
    out_bytes: int
    widths: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Facts:
    """A program.

    Attributes:
        vectors: sizes of a vector that it may have.
    """

    walk: Walk
    parts: tuple[PartFacts, ...]
    vectors: tuple[int, ...]
    is_symbolic: bool

    @property
    def shared_bytes(self) -> int:
        """Bytes of an element of each tensor that several stages read, together."""
        reads = (read for part in self.parts for read in part.reads)
        return sum(read.bytes for read in reads if read.is_shared and read.is_first)


@dataclass(frozen=True, slots=True)
class Extents:
    """The sizes of a program in one shape, or in many as arrays.

    Attributes:
        items: their number, and `item_near` that of the innermost group.
        lanes: for each part the places of an item; `lane_near` those of the innermost group.
        line: places of the group before the innermost, which is the other side of a tile.
        tensors: bytes of all parameters.
        open: a number that all symbolic dimensions are multiples of which vectors need whole; 0
            where they need none.
    """

    items: Any
    item_near: Any
    lanes: tuple[Any, ...]
    lane_near: tuple[Any, ...]
    line: Any
    tensors: Any
    open: Any


def stack(several: Sequence[Extents]) -> Extents:
    """The sizes of many shapes as arrays."""
    found: dict[str, Any] = {}
    for field in fields(Extents):
        column = [getattr(each, field.name) for each in several]
        array = np.array(column, dtype=np.int64)
        is_many = isinstance(column[0], tuple)
        found[field.name] = tuple(array.T) if is_many else array
    return Extents(**found)


def read_facts(program: Program) -> Facts:
    """The facts of a program."""
    bits = [tvm_compat.element_bits(r.buffer.dtype) for part in program.parts for r in part.reads]
    bits.append(tvm_compat.element_bits(program.parts[-1].body.target.dtype))
    most = BYTES * 8 // min(bits)
    vectors = [v for v in WIDTHS if v <= most and open_sizes(program, v) is not None]
    shared, seen = program.shared_reads(), set[int]()
    parts = []
    for part in program.parts:
        reads = []
        for number, read in {read.number: read for read in part.reads}.items():
            reads.append(
                ReadFacts(
                    max(1, tvm_compat.element_bits(read.buffer.dtype) // 8),
                    read.growth,
                    number in shared,
                    number not in seen,
                    program.is_turned(read),
                    _widths(program, part, read.index, str(read.buffer.dtype), vectors),
                )
            )
            seen.add(number)
        parts.append(_part_facts(program, part, tuple(reads), vectors))
    is_symbolic = any(axis.symbolic for part in program.parts for axis in part.stage.axes)
    return Facts(program.walk, tuple(parts), tuple(vectors), is_symbolic)


def _part_facts(
    program: Program, part: Part, reads: tuple[ReadFacts, ...], vectors: Sequence[int]
) -> PartFacts:
    target, stage = part.body.target, part.stage
    out_bytes = max(1, tvm_compat.element_bits(target.dtype) // 8) if stage.output else 0
    widths = _widths(program, part, part.index, str(target.dtype), vectors)
    others = max(0, len(stage.reads) - len(part.reads))
    return PartFacts(reads, others, stage.reduces, stage.heavy, out_bytes, widths)


def _widths(
    program: Program, part: Part, index: Any, dtype: str, vectors: Sequence[int]
) -> dict[int, int]:
    """Elements of an access for each size of a vector, where symbolic dimensions fit it."""
    import tvm

    found = {}
    growth = rewrite.growth(tvm.sym.Analyzer(), index, program.along)
    for vector in vectors:
        symbols = multiples(open_sizes(program, vector) or (), vector)
        times = program.along * rewrite.constant(vector, program.along)
        begin = rewrite.substitute(index, [(program.along, times), *symbols])
        near = program.items[-1] if program.walk is Walk.COLUMNS else (part.lanes or (None,))[-1]
        is_vector = near is not None and is_whole(rewrite.substitute(near.extent, symbols), vector)
        fits = growth == 1 and is_vector
        found[vector] = width_at(tvm.sym.Analyzer().simplify(begin), vector, dtype) if fits else 1
    return found


class ExtentsOf:
    """Gives the sizes of a program in each shape.

    Args:
        parameters: of the program.
    """

    def __init__(self, program: Program, parameters: Sequence[Any]) -> None:
        self._sizes = Sizes()
        self._items = [self._sizes.of(group.extent) for group in program.items]
        self._lanes = [[self._sizes.of(g.extent) for g in part.lanes] for part in program.parts]
        self._tensors = [
            (self._sizes.of(count_elements(p)), tvm_compat.element_bits(p.dtype))
            for p in parameters
        ]
        self._one = self._sizes.of(1)
        widest = max(WIDTHS)
        options = (open_sizes(program, v) for v in (widest, *reversed(WIDTHS)))
        symbols = next((found for found in options if found is not None), ())
        self._open = [self._sizes.of(symbol) for symbol in symbols]

    def at(self, values: Mapping[str, int]) -> Extents:
        """The sizes with values of the symbolic dimensions."""
        known = self._sizes.values(values)
        return Extents(
            math.prod(known[n] for n in self._items),
            known[(self._items or [self._one])[-1]],
            tuple(math.prod(known[n] for n in lanes) for lanes in self._lanes),
            tuple(known[(lanes or [self._one])[-1]] for lanes in self._lanes),
            known[([self._one, self._one] + self._lanes[-1])[-2]],
            sum(known[n] * bits // 8 for n, bits in self._tensors),
            math.gcd(*(known[n] for n in self._open)),
        )
