"""Copies that put the factors of a group next to one another, by vectors.

Where an operand is contiguous across the sums and not along them, the factors of a group come from
as many rows. Left to itself the compiler stores them one by one. Here each row gives a vector, and
a shuffle of all rows is stored at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.passes.bf16.tensors import BF16, BITS, bits_of, is_reinterpreted
from spaces.passes.dots.steps import find_growth, span_region

MIXES = "tuner.mixes"
"""Annotation of a vectorised loop around the loop over the factors of a group."""


def with_mixed_copies(function: Any) -> Any:
    """A scheduled PrimFunc that copies the same, its marked copies by vectors."""
    from tvm import tirx
    from tvm.sym import Analyzer
    from tvm_ffi import structural_mutate

    analyzer = Analyzer()

    def loop(node: Any, mutator: Any) -> Any:
        if tvm_compat.as_int(node.extent) is not None:
            rewrite.bind_loop(analyzer, node)
        if MIXES not in node.annotations:
            return mutator.default_mutate(node)
        copy = _read(node, analyzer)
        return _in_scalars(node) if copy is None else copy.write()

    body = structural_mutate(function.body, [(tirx.For, loop)])
    return function if body.same_as(function.body) else function.with_body(body)


@dataclass(frozen=True)
class _Copy:
    """A copy of a group for each of some lanes.

    Attributes:
        loops: over lanes and over a group, in order.
        realize: of the block that copies an element, and `always` its conditions that are the same
            for all lanes.
        element: what is read, in terms of the loops: a load, maybe its bits.
        place: indices of what is written, in terms of the loops.
        whole: conditions of all lanes, without which there is not an element for each.
        each: conditions of one place in a group, without which `other` is stored.
    """

    loops: tuple[Any, Any]
    realize: Any
    always: list[Any]
    element: Any
    place: list[Any]
    whole: list[Any]
    each: list[Any]
    other: Any
    analyzer: Any

    def write(self) -> Any:
        """The statement that copies all lanes."""
        from tvm import s_tir, tirx

        lanes, terms = self._extents()
        rows = [self._read_row(term) for term in range(terms)]
        order = [term * lanes + lane for lane in range(lanes) for term in range(terms)]
        value = tirx.Shuffle(rows, [tirx.const(place, "int32") for place in order])
        target = self.realize.block.body.buffer
        if str(target.dtype) == BF16:
            value = tirx.reinterpret(f"{BF16}x{lanes * terms}", value)
        place = [self._at(index, 0, 0) for index in self.place]
        place[-1] = tirx.Ramp(place[-1], rewrite.constant(1, place[-1]), lanes * terms)
        load = _load_of(self.element)
        reads = [self._region(load.source, load.indices)]
        writes = [self._region(target, self.place)]
        name = str(self.realize.block.name_hint)
        made = s_tir.SBlock([], reads, writes, name, tirx.BufferStore(target, value, place))
        copied = s_tir.SBlockRealize([], rewrite.conjunction(self.always), made)
        if not self.whole:
            return copied
        rest = rewrite.renew_variables(_in_scalars(self.loops[0]))
        return tirx.IfThenElse(rewrite.conjunction(self.whole), copied, rest)

    def _read_row(self, term: int) -> Any:
        """The factors at one place of a group, of all lanes."""
        from tvm import tirx

        lanes, _ = self._extents()
        load = _load_of(self.element)
        place = [self._at(index, 0, term) for index in load.indices]
        place[-1] = tirx.Ramp(place[-1], rewrite.constant(1, place[-1]), lanes)
        row = load.source[tuple(place)]
        if str(load.source.dtype) == BF16:
            row = tirx.reinterpret(f"{BITS}x{lanes}", row)
        if not self.each:
            return row
        other = self.other if str(self.other.ty.dtype) != BF16 else bits_of(self.other)
        inside = [self._at(condition, 0, term) for condition in self.each]
        return tirx.Select(rewrite.conjunction(inside), row, tirx.Broadcast(other, lanes))

    def _extents(self) -> tuple[int, int]:
        lanes, terms = (tvm_compat.as_int(loop.extent) or 0 for loop in self.loops)
        return lanes, terms

    def _at(self, expression: Any, lane: int, term: int) -> Any:
        steps = [
            (loop.loop_var, rewrite.constant(number, loop.loop_var))
            for loop, number in zip(self.loops, (lane, term), strict=True)
        ]
        return self.analyzer.simplify(rewrite.substitute(expression, steps))

    def _region(self, tensor: Any, indices: Any) -> Any:
        lanes, terms = self._extents()
        first, last = (
            [self._at(index, *end) for index in indices] for end in ((0, 0), (lanes - 1, terms - 1))
        )
        return span_region(tensor, first, last, self.analyzer)


def _read(lanes: Any, analyzer: Any) -> _Copy | None:
    """The copy that a marked loop does; None where vectors cannot do it."""
    import tvm
    from tvm.tirx import BufferLoad, BufferStore

    group = lanes.body
    if not isinstance(group, tvm.tirx.For) or tvm_compat.as_int(group.extent) is None:
        return None
    realize, loops = group.body, (lanes, group)
    variables = [loop.loop_var for loop in loops]
    store = realize.block.body if isinstance(realize, tvm.s_tir.SBlockRealize) else None
    if not isinstance(store, BufferStore):
        return None
    for loop in loops:
        rewrite.bind_loop(analyzer, loop)
    tested, element, other = _take_apart(rewrite.place_in_loops(realize, store.value))
    load = _load_of(element)
    if load is None or (tested and not _is_number(other)):
        return None
    place = [analyzer.simplify(rewrite.place_in_loops(realize, i)) for i in store.indices]
    written = find_growth(BufferLoad(store.buffer, place), variables, analyzer)
    *slow, last = map(analyzer.simplify, load.indices)
    apart = any(rewrite.uses(index, variables[:1]) for index in slow)
    step = rewrite.growth(analyzer, last, variables[0])
    if written != [tvm_compat.as_int(group.extent), 1] or apart or step != 1:
        return None
    asked = rewrite.conjuncts(realize.predicate)
    tested = [analyzer.simplify(condition) for condition in tested]
    ragged = [c for c in (*asked, *tested) if rewrite.uses(c, variables[:1])]
    if any(rewrite.uses(c, variables[1:]) for c in (*asked, *ragged)):
        return None
    if not all(_is_linear(c, variables[0], analyzer) for c in ragged):
        return None
    always, each = (
        [c for c in conditions if not rewrite.is_among(c, ragged)] for conditions in (asked, tested)
    )
    ends = [rewrite.constant(0, lanes.extent), lanes.extent - 1]
    whole = [
        analyzer.simplify(rewrite.substitute(c, [(variables[0], end)]))
        for c in ragged
        for end in ends
    ]
    return _Copy(loops, realize, always, element, place, whole, each, other, analyzer)


def _take_apart(value: Any) -> tuple[list[Any], Any, Any]:
    """The conditions of an element, the element, and what is there without it; None where there is
    an element always."""
    from tvm import ir, tirx

    if isinstance(value, tirx.Select):
        return rewrite.conjuncts(value.condition), value.true_value, value.false_value
    if isinstance(value, ir.Call) and tvm_compat.operator_name(value) == tvm_compat.IF_THEN_ELSE:
        return rewrite.conjuncts(value.args[0]), value.args[1], value.args[2]
    return [], value, None


def _is_number(value: Any) -> bool:
    """Whether an expression is a constant, or the bits of one."""
    from tvm import tirx

    return isinstance(
        value.args[0] if is_reinterpreted(value) else value, tirx.IntImm | tirx.FloatImm
    )


def _load_of(element: Any) -> Any:
    """The load of an element, or of its bits; None of anything else."""
    from tvm.ir import TensorLoad

    if is_reinterpreted(element):
        element = element.args[0]
    return element if isinstance(element, TensorLoad) else None


def _is_linear(condition: Any, variable: Any, analyzer: Any) -> bool:
    """Whether a condition that holds at both ends of a loop holds in between."""
    from tvm import tirx

    if not isinstance(condition, tirx.LT | tirx.LE):
        return False
    return rewrite.growth(analyzer, condition.b - condition.a, variable) is not None


def _in_scalars(lanes: Any) -> Any:
    """A marked loop without its mark, which copies element by element."""
    from tvm import tirx

    marks = {key: value for key, value in lanes.annotations.items() if key != MIXES}
    return tirx.For(lanes.loop_var, lanes.min, lanes.extent, tirx.ForKind.SERIAL, lanes.body,
                    None, marks)  # fmt: skip
