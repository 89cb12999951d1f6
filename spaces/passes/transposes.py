"""Transposing copies by in-register transposes of squares of vectors.

Panels of an operand whose rows lie along the reduction are packed across its rows: eight neighbours
of a panel come from eight rows. Left to itself the compiler fetches them one by one, two to four
cycles for each element: packing takes longer than a small product itself. Here squares of eight by
eight are loaded by rows, transposed in registers by rounds of shuffles, and stored by columns.

The rounds are the usual network for AVX (unpack, shuffle pairs, swap halves), for which other
instruction sets have single instructions as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from spaces.ir import rewrite, tvm_compat

_SERIAL, _VECTORISED, _UNROLLED = 0, 2, 3
_BITS = 32
_ROUNDS: dict[int, tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]] = {
    4: (
        (1, (0, 4, 1, 5), (2, 6, 3, 7)),
        (2, (0, 1, 4, 5), (2, 3, 6, 7)),
    ),
    8: (
        (1, (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)),
        (2, (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)),
        (4, (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)),
    ),
}
"""For each size of a square its rounds: the distance between the two rows that are shuffled, and
the elements of both that become the first and the second of them."""


def with_transposes(function: Any) -> Any:
    """A scheduled PrimFunc that copies the same, its transposing copies by squares."""
    import tvm
    from tvm.sym import Analyzer
    from tvm_ffi import structural_mutate

    analyzer = Analyzer()

    def loop(node: Any, mutator: Any) -> Any:
        if tvm_compat.as_int(node.extent) is not None:
            rewrite.bind_loop(analyzer, node)
        found = _match(node, analyzer)
        return mutator.default_mutate(node) if found is None else _rewritten(found)

    body = structural_mutate(function.body, [(tvm.tirx.For, loop)])
    return function if body.same_as(function.body) else function.with_body(body)


@dataclass(frozen=True)
class _Copy:
    """A transposing copy: `depth` walks along the source's rows, `lanes` across them.

    Attributes:
        depth: the serial outer loop, contiguous in the source.
        unrolled: the loops in between.
        lanes: the vectorised inner loop, contiguous in the target.
        realize: the realisation of the block.
        size: rows and columns of a square.
    """

    depth: Any
    unrolled: tuple[Any, ...]
    lanes: Any
    realize: Any
    size: int
    analyzer: Any

    def at(self, expression: Any, depth: Any, lane: int) -> Any:
        """An expression of the loops, at one step of `depth` and `lanes`."""
        lanes = self.lanes.loop_var
        steps = [(self.depth.loop_var, depth), (lanes, rewrite.constant(lane, lanes))]
        return self.analyzer.simplify(rewrite.substitute(expression, steps))

    def of_loops(self, expression: Any) -> Any:
        """An expression of the block's axes, in terms of the loops."""
        return rewrite.place_in_loops(self.realize, expression)

    @cached_property
    def comes_from(self) -> list[Any]:
        """Indices of the element that is read, in terms of the loops."""
        return [self.of_loops(index) for index in self.load.indices]

    @cached_property
    def goes_to(self) -> list[Any]:
        """Indices of the element that is written, in terms of the loops."""
        return [self.of_loops(index) for index in self.store.indices]

    @property
    def store(self) -> Any:
        """The store of the block, its only statement."""
        return self.realize.block.body

    @property
    def load(self) -> Any:
        """The load of the element that is copied."""
        return self.store.value.args[1] if self.guard is not None else self.store.value

    @cached_property
    def guard(self) -> Any:
        """The condition for the copy, of the loops; None is always. Else a constant is stored."""
        import tvm

        if not isinstance(self.store.value, tvm.ir.Call):
            return None
        return self.of_loops(self.store.value.args[0])


def _match(node: Any, analyzer: Any) -> _Copy | None:
    """The transposing copy that a loop nest performs; None where it is anything else."""
    import tvm

    def is_loop(stmt: Any, kind: int) -> bool:
        return isinstance(stmt, tvm.tirx.For) and int(stmt.kind) == kind

    unrolled, inner = [], node.body
    while is_loop(inner, _UNROLLED):
        unrolled.append(inner)
        inner = inner.body
    if not (is_loop(node, _SERIAL) and is_loop(inner, _VECTORISED)):
        return None
    depth, lanes = tvm_compat.as_int(node.extent) or 1, tvm_compat.as_int(inner.extent) or 1
    sizes = [s for s in sorted(_ROUNDS, reverse=True) if depth % s == 0 == lanes % s]
    if not sizes or not isinstance(inner.body, tvm.s_tir.SBlockRealize):
        return None
    for loop in (*unrolled, inner):
        rewrite.bind_loop(analyzer, loop)
    found = _Copy(node, tuple(unrolled), inner, inner.body, sizes[0], analyzer)
    return found if _is_copy(found) and _is_across(found) else None


def _is_copy(c: _Copy) -> bool:
    """Whether the block copies one element, or stores a constant where there is no element."""
    import tvm

    block = c.realize.block
    if block.init is not None or block.alloc_buffers or block.match_buffers:
        return False
    if tvm_compat.as_int(c.realize.predicate) != 1 or not isinstance(c.store, tvm.tirx.BufferStore):
        return False
    value = c.store.value
    if isinstance(value, tvm.ir.Call):
        named = str(getattr(value.op, "name", "")).endswith("if_then_else")
        constant = (tvm.tirx.FloatImm, tvm.tirx.IntImm)
        if not named or not isinstance(value.args[2], constant):
            return False
        value = value.args[1]
    dtype = str(value.ty.dtype)
    return isinstance(value, tvm.ir.TensorLoad) and dtype in ("float32", "int32")


def _is_across(c: _Copy) -> bool:
    """Whether `depth` is contiguous in the source, and `lanes` in the target."""
    depth = c.depth.loop_var
    first, next_ = depth, depth + 1

    def shifts(before: list[Any], after: list[Any], by: int) -> bool:
        steps = [0] * (len(before) - 1) + [by]
        pairs = zip(before, after, steps, strict=True)
        return all(c.analyzer.can_prove_equal(b + rewrite.constant(s, b), a) for b, a, s in pairs)

    here = [c.at(i, first, 0) for i in c.comes_from]
    if not shifts(here, [c.at(i, next_, 0) for i in c.comes_from], 1):
        return False
    if c.guard is not None and not c.analyzer.can_prove_equal(
        c.at(c.guard, first, 0), c.at(c.guard, next_, 0)
    ):
        return False
    extent = tvm_compat.as_int(c.lanes.extent) or 0
    there = [c.at(i, first, 0) for i in c.goes_to]
    return all(shifts(there, [c.at(i, first, r) for i in c.goes_to], r) for r in range(1, extent))


def _rewritten(c: _Copy) -> Any:
    """The loop nest that copies the same by squares."""
    from tvm import tirx

    outer = tirx.Var(f"{c.depth.loop_var.name}_squares", c.depth.loop_var.ty)
    start = outer * rewrite.constant(c.size, outer)
    extent = tvm_compat.as_int(c.lanes.extent) or 0
    squares = [_square(c, start, lane) for lane in range(0, extent, c.size)]
    body = squares[0] if len(squares) == 1 else tirx.SeqStmt(squares)
    for loop in reversed(c.unrolled):
        body = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body)
    number = rewrite.constant((tvm_compat.as_int(c.depth.extent) or 0) // c.size, outer)
    return tirx.For(outer, rewrite.constant(0, outer), number, c.depth.kind, body)


def _square(c: _Copy, start: Any, lane: int) -> Any:
    """The block of one square: load its rows, transpose, store its columns."""
    from tvm import s_tir, tirx

    kind = f"{c.load.ty.dtype}x{c.size}"
    statements, rows = [], []

    def bound(name: str, value: Any) -> Any:
        variable = tirx.Var(name, kind)
        statements.append(tirx.Bind(variable, value))
        return variable

    for row in range(c.size):
        rows.append(bound("row", _load(c, start, lane + row)))
    for distance, first, second in _ROUNDS[c.size]:
        mixed = list(rows)
        for one in (i for i in range(c.size) if not i & distance):
            pair = [rows[one], rows[one + distance]]
            mixed[one] = bound("mixed", tirx.Shuffle(pair, list(first)))
            mixed[one + distance] = bound("mixed", tirx.Shuffle(pair, list(second)))
        rows = mixed
    for column, place in enumerate(_order(c.size)):
        indices = [c.at(i, start + rewrite.constant(column, start), lane) for i in c.goes_to]
        indices[-1] = tirx.Ramp(indices[-1], rewrite.constant(1, indices[-1]), c.size)
        statements.append(tirx.BufferStore(c.store.buffer, rows[place], indices))
    block = c.realize.block
    reads = [_region(c, r, start, lane) for r in block.reads]
    writes = [_region(c, r, start, lane) for r in block.writes]
    body = tirx.SeqStmt(statements)
    made = s_tir.SBlock([], reads, writes, str(block.name_hint), body)
    return s_tir.SBlockRealize([], True, made)


def _order(size: int) -> list[int]:
    """For each column of a square the vector in which the rounds leave it."""
    columns = [[(row, column) for column in range(size)] for row in range(size)]
    for distance, first, second in _ROUNDS[size]:
        mixed = list(columns)
        for one in (i for i in range(size) if not i & distance):
            both = columns[one] + columns[one + distance]
            mixed[one] = [both[i] for i in first]
            mixed[one + distance] = [both[i] for i in second]
        columns = mixed
    return [columns.index([(row, column) for row in range(size)]) for column in range(size)]


def _load(c: _Copy, start: Any, lane: int) -> Any:
    """The load of one row of a square, zero or another constant where the guard fails."""
    from tvm import tirx

    indices = [c.at(i, start, lane) for i in c.comes_from]
    indices[-1] = tirx.Ramp(indices[-1], rewrite.constant(1, indices[-1]), c.size)
    piece = c.load.source[tuple(indices)]
    if c.guard is None:
        return piece
    nothing = tirx.Broadcast(c.store.value.args[2], c.size)
    # TVM turns this into a branch once the program is flat. Were it a branch from the start, TVM
    # would solve for the bounds of both ways, for each row of each square: a twelfth of a build.
    return tirx.Select(c.at(c.guard, start, lane), piece, nothing)


def _region(c: _Copy, region: Any, start: Any, lane: int) -> Any:
    """The region that a square accesses where the block accesses one element."""
    import tvm
    from tvm.tirx import BufferRegion

    last = c.size - 1
    ranges = []
    for dim in region.region:
        least = c.of_loops(dim.min)
        low = c.at(least, start, lane)
        high = c.at(least, start + rewrite.constant(last, start), lane + last)
        extent = c.analyzer.simplify(high - low + rewrite.constant(1, low))
        ranges.append(tvm.ir.Range.from_min_extent(low, extent))
    return BufferRegion(region.source, ranges)
