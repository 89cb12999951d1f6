"""A step of a vector of sums, read from its loops and written as one instruction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.passes.dots.instructions import WORD, Dot, broadcast, find_dot


@dataclass(frozen=True)
class Step:
    """A step of the sums of a vector.

    Attributes:
        sums: the loads of a sum and its two factors, indexed by the loops around.
        factors: of a product, in order; `apart` is the number of the one of which each lane has its
            own group, all lanes share one of the other.
        ends: the loops over lanes and over products, in order.
        around: the loops from that around all steps of a tile's sums inwards.
    """

    realize: Any
    dot: Dot
    sums: Any
    factors: tuple[Any, Any]
    apart: int
    ends: tuple[Any, Any]
    around: tuple[Any, ...]
    analyzer: Any

    @property
    def tensors(self) -> tuple[Any, Any]:
        """The tensors that factors are read from."""
        return self.factors[0].source, self.factors[1].source

    @property
    def shared_factor(self) -> Any:
        """The load of the factor of which all lanes have the same group."""
        return self.factors[1 - self.apart]

    @property
    def lanes(self) -> int:
        """Sums of a vector."""
        return int(tvm_compat.as_int(self.ends[0].extent) or 0)

    def write(self) -> Any:
        """The statement that does the step."""
        from tvm import s_tir, tirx

        words = [broadcast(self._words(self.shared_factor, 1), self.lanes)] * 2
        words[self.apart] = self._words(self.factors[self.apart], self.lanes)
        place = self.place_sums()
        turned = self.apart if self.dot.alike else None
        added = self.dot.add(self.sums.source[tuple(place)], (words[0], words[1]), turned)
        body = tirx.BufferStore(self.sums.source, added, place)
        reads = [self.region(load) for load in (self.sums, *self.factors)]
        made = s_tir.SBlock([], reads, reads[:1], str(self.realize.block.name_hint), body)
        return s_tir.SBlockRealize([], self.realize.predicate, made)

    def place_sums(self) -> list[Any]:
        """The indices of the vector of sums."""
        from tvm import tirx

        place = self.first(self.sums)
        place[-1] = tirx.Ramp(place[-1], rewrite.constant(1, place[-1]), self.lanes)
        return place

    def _words(self, load: Any, number: int) -> Any:
        """So many groups that follow one another, each as 32 bits."""
        return read_words(load.source, self.first(load), number, self.dot.terms)

    def first(self, load: Any) -> list[Any]:
        """The indices of an access in the first lane and the first product."""
        return [self._at(index, last=False) for index in load.indices]

    def _at(self, index: Any, *, last: bool) -> Any:
        """An index in the first or the last step of the loops over lanes and products."""
        steps = [
            (loop.loop_var, loop.extent - 1 if last else rewrite.constant(0, loop.loop_var))
            for loop in self.ends
        ]
        return self.analyzer.simplify(rewrite.substitute(index, steps))

    def region(self, load: Any) -> Any:
        """The region that the step accesses in a tensor."""
        first, last = ([self._at(i, last=end) for i in load.indices] for end in (False, True))
        return span_region(load.source, first, last, self.analyzer)


def span_region(tensor: Any, first: list[Any], last: list[Any], analyzer: Any) -> Any:
    """The region of a tensor from one place to another."""
    from tvm.ir import Range
    from tvm.tirx import BufferRegion

    extents = [
        analyzer.simplify(b - a + rewrite.constant(1, a)) for a, b in zip(first, last, strict=True)
    ]
    return BufferRegion(tensor, [*map(Range.from_min_extent, first, extents)])


def read_words(tensor: Any, place: list[Any], number: int, terms: int) -> Any:
    """So many groups of elements from a place on, each as 32 bits."""
    from tvm import tirx

    ramp = tirx.Ramp(place[-1], rewrite.constant(1, place[-1]), number * terms)
    lanes = f"x{number}" if number > 1 else ""
    return tirx.reinterpret(f"{WORD}{lanes}", tensor[(*place[:-1], ramp)])


def read_step(lanes: Any, around: tuple[Any, ...], analyzer: Any) -> Step | None:
    """The step that a marked loop does; None where it is none that an instruction does.

    Args:
        around: see `Step`; none where the loop around all steps is not known.
    """
    import tvm
    from tvm.tirx import BufferLoad

    group = lanes.body
    if not isinstance(group, tvm.tirx.For):
        return None
    realize = group.body
    dot = find_dot(realize.block) if isinstance(realize, tvm.s_tir.SBlockRealize) else None
    if dot is None or tvm_compat.as_int(group.extent) != dot.terms:
        return None
    loops = (lanes, group)
    inner = [loop.loop_var for loop in loops]
    if realize.block.init is not None or rewrite.uses(realize.predicate, inner):
        return None
    if dot.alike and not around:
        return None
    for loop in loops:
        rewrite.bind_loop(analyzer, loop)

    def place(load: Any) -> Any:
        indices = [rewrite.place_in_loops(realize, index) for index in load.indices]
        return BufferLoad(load.source, [analyzer.simplify(index) for index in indices])

    product = rewrite.find_product(realize.block.body)
    total = place(realize.block.body.value.a)
    first, second = (place(rewrite.uncast(f)) for f in (product.a, product.b))
    grows = [find_growth(load, inner, analyzer) for load in (total, first, second)]
    apart = [dot.terms, 1]
    if grows[0] != [1, 0] or grows[1:] not in ([apart, [0, 1]], [[0, 1], apart]):
        return None
    number = 0 if grows[1] == apart else 1
    return Step(realize, dot, total, (first, second), number, loops, around, analyzer)


def find_growth(load: Any, variables: list[Any], analyzer: Any) -> list[int | None]:
    """The distance in memory of what steps of some loops access, in elements, for each loop."""
    flat = rewrite.constant(0, load.indices[-1])
    for index, size in zip(load.indices, load.source.shape, strict=True):
        flat = flat * size + index
    if len(load.source.strides):
        return [None for _ in variables]
    return [rewrite.growth(analyzer, flat, variable) for variable in variables]
