"""Sums of products of bfloat16, two at a time, by `vdpbf16ps` of AVX512-BF16.

The instruction adds two products to each float32 of a vector: the factors of a lane lie next to one
another in 32 bits. Products are exact, as in float32. Each of the two additions is rounded to the
nearest once, as one of a fused multiply-add is; but numbers that are subnormal (smaller than
2**-126) are read as zero, and sums that are come out as zero (Intel, "Intel 64 and IA-32
Architectures Software Developer's Manual", VDPBF16PS).

A schedule marks the loop over the lanes of such a vector, around the loop over the two products of
a step. TVM has no bfloat16 in LLVM, and LLVM's intrinsic takes nothing else: a function that is
given 32 bits and calls the intrinsic is linked into the code as LLVM IR, and inlined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.passes.bf16.tensors import BF16, list_allocated, with_bits
from spaces.targets.cpu import multiplies_bf16

PAIRS = "tuner.pairs"
"""Annotation of a loop over lanes around the loop over the two products of a step."""
_SUM = "float32"
_PAIR = 2
_IMPORT = "pragma_import_llvm"
_NAME = "tuner.pair_dots"


def is_sum_of_bf16(block: Any) -> bool:
    """Whether a block sums, in float32, products of float32 whose factors are bfloat16."""
    from tvm.ir import TensorLoad
    from tvm.tirx import Cast

    product = rewrite.find_product(block.body)
    if product is None or str(block.body.buffer.dtype) != _SUM or str(product.ty.dtype) != _SUM:
        return False
    return all(
        isinstance(f, Cast) and isinstance(f.value, TensorLoad) and str(f.value.ty.dtype) == BF16
        for f in (product.a, product.b)
    )


def with_pair_dots(function: Any) -> Any:
    """A scheduled PrimFunc whose marked loops are instructions that add up pairs of products.

    A marked loop whose factors do not lie as the instruction takes them stays a loop; so do all in
    a function that is bound to a target without the instruction.
    """
    import tvm
    from tvm import tirx
    from tvm.sym import Analyzer
    from tvm_ffi import structural_mutate

    analyzer = Analyzer()
    widths: set[int] = set()
    copied, computed = list_allocated(function)
    target = tvm_compat.attribute(function, "target")
    fits = target is None or multiplies_bf16(target)

    def loop(node: Any, mutator: Any) -> Any:
        if tvm_compat.as_int(node.extent) is not None:
            analyzer.bind(node.loop_var, tvm.ir.Range.from_min_extent(node.min, node.extent))
        if PAIRS not in node.annotations:
            return mutator.default_mutate(node)
        step = _read(node, analyzer) if fits else None
        if step is None or any(rewrite.is_among(f, computed) for f in step.factors):
            marks = {key: value for key, value in node.annotations.items() if key != PAIRS}
            return rewrite.copy_loop(node, node.body, marks=marks)
        widths.add(step.lanes)
        return step.write()

    body = structural_mutate(function.body, [(tirx.For, loop)])
    if body.same_as(function.body):
        return function
    root = body.block
    inside = root.body
    for lanes in sorted(widths):
        inside = tirx.AttrStmt(0, _IMPORT, _code(lanes), inside)
    root = rewrite.change_block(root, body=inside)
    body = tvm.s_tir.SBlockRealize(body.iter_values, body.predicate, root)
    return with_bits(function.with_body(body), copied)


@dataclass(frozen=True)
class _Step:
    """A step of the sums of a vector.

    Attributes:
        sums: the loads of a sum and its two factors, indexed by the loops around.
        apart: the factor of which each lane has its own pair; `shared` that of which all have one.
        ends: the loops over lanes and over products, in order.
    """

    realize: Any
    sums: Any
    apart: Any
    shared: Any
    ends: tuple[Any, Any]
    analyzer: Any

    @property
    def factors(self) -> tuple[Any, Any]:
        """The tensors that factors are read from."""
        return self.apart.source, self.shared.source

    @property
    def lanes(self) -> int:
        """Sums of a vector."""
        return int(tvm_compat.as_int(self.ends[0].extent) or 0)

    def write(self) -> Any:
        """The statement that does the step."""
        from tvm import s_tir, tirx

        lanes, block = self.lanes, self.realize.block
        sums = self._first(self.sums)
        sums[-1] = tirx.Ramp(sums[-1], rewrite.constant(1, sums[-1]), lanes)
        shared = tirx.Broadcast(self._words(self.shared, 1), lanes)
        kind = f"{_SUM}x{lanes}"
        added = tirx.call_pure_extern(
            kind, f"{_NAME}.{lanes}", self.sums.source[tuple(sums)], self._words(self.apart, lanes),
            shared,
        )  # fmt: skip
        body = tirx.BufferStore(block.body.buffer, added, sums)
        reads = [self._region(load) for load in (self.sums, self.apart, self.shared)]
        made = s_tir.SBlock([], reads, reads[:1], str(block.name_hint), body)
        return s_tir.SBlockRealize([], self.realize.predicate, made)

    def _words(self, load: Any, number: int) -> Any:
        """So many pairs that follow one another, each as 32 bits."""
        from tvm import tirx

        place = self._first(load)
        place[-1] = tirx.Ramp(place[-1], rewrite.constant(1, place[-1]), number * _PAIR)
        lanes = f"x{number}" if number > 1 else ""
        return tirx.reinterpret(f"int32{lanes}", load.source[tuple(place)])

    def _first(self, load: Any) -> list[Any]:
        return [self._at(index, last=False) for index in load.indices]

    def _at(self, index: Any, *, last: bool) -> Any:
        """An index in the first or the last step of the loops over lanes and products."""
        steps = [
            (loop.loop_var, loop.extent - 1 if last else rewrite.constant(0, loop.loop_var))
            for loop in self.ends
        ]
        return self.analyzer.simplify(rewrite.substitute(index, steps))

    def _region(self, load: Any) -> Any:
        """The region that the step accesses in a tensor."""
        from tvm.ir import Range
        from tvm.tirx import BufferRegion

        def extent(index: Any) -> Any:
            first, last = (self._at(index, last=end) for end in (False, True))
            grown = self.analyzer.simplify(last - first + rewrite.constant(1, first))
            return Range.from_min_extent(first, grown)

        return BufferRegion(load.source, [extent(index) for index in load.indices])


def _read(lanes: Any, analyzer: Any) -> _Step | None:
    """The step that a marked loop does; None where it is none that the instruction does."""
    import tvm
    from tvm.tirx import BufferLoad

    pair = lanes.body
    if not isinstance(pair, tvm.tirx.For) or tvm_compat.as_int(pair.extent) != _PAIR:
        return None
    realize = pair.body
    if not isinstance(realize, tvm.s_tir.SBlockRealize) or not is_sum_of_bf16(realize.block):
        return None
    loops = (lanes, pair)
    inner = [loop.loop_var for loop in loops]
    if realize.block.init is not None or rewrite.uses(realize.predicate, inner):
        return None
    for loop in loops:
        analyzer.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))

    def place(load: Any) -> Any:
        indices = [rewrite.place_in_loops(realize, index) for index in load.indices]
        return BufferLoad(load.source, [analyzer.simplify(index) for index in indices])

    product = rewrite.find_product(realize.block.body)
    total = place(realize.block.body.value.a)
    factors = [place(rewrite.uncast(f)) for f in (product.a, product.b)]
    grows = [_growth(load, inner, analyzer) for load in (total, *factors)]
    if grows[0] != [1, 0] or sorted(grows[1:], key=str) != [[0, 1], [_PAIR, 1]]:
        return None
    shared, apart = factors if grows[1] == [0, 1] else factors[::-1]
    return _Step(realize, total, apart, shared, loops, analyzer)


def _growth(load: Any, variables: list[Any], analyzer: Any) -> list[int | None]:
    """The distance in memory of what steps of some loops access, in elements, for each loop."""
    flat = rewrite.constant(0, load.indices[-1])
    for index, size in zip(load.indices, load.source.shape, strict=True):
        flat = flat * size + index
    if len(load.source.strides):
        return [None for _ in variables]
    return [rewrite.growth(analyzer, flat, variable) for variable in variables]


def _code(lanes: int) -> str:
    """LLVM IR of the function that does a step."""
    sums, words, pairs = f"<{lanes} x float>", f"<{lanes} x i32>", f"<{lanes * _PAIR} x bfloat>"
    intrinsic = f"@llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
    return f"""
declare {sums} {intrinsic}({sums}, {pairs}, {pairs})
define {sums} @{_NAME}.{lanes}({sums} %sums, {words} %one, {words} %other) {{
  %a = bitcast {words} %one to {pairs}
  %b = bitcast {words} %other to {pairs}
  %result = call {sums} {intrinsic}({sums} %sums, {pairs} %a, {pairs} %b)
  ret {sums} %result
}}
"""
