"""Predicated vector stores: the tail of a row as one masked store.

AVX and AVX-512 load and store under a mask where a scalar loop takes a branch for each element. A
register tile whose elements are never extracted one by one also stays in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from spaces.ir import rewrite, tvm_compat


def mask_store(loop: Any, others: Any, many: Any, params: Any) -> Any | None:
    """Turn a vectorised loop around a block into one store of its first lanes under a mask.

    Only parameters are loaded and stored under a mask. Of an intermediate tensor TVM would take the
    first lane for all that is accessed, and may shrink the tensor to that.

    Args:
        loop: its body is the realisation of a block that binds nothing.
        others: the predicate of the whole block.
        many: the number of lanes to store; clamped to between none and all.
        params: the program's parameters.

    Returns:
        A statement; None where the stored value is not plain arithmetic on neighbouring elements.
    """
    from tvm import s_tir, tirx
    from tvm.sym import Analyzer
    from tvm.tirx import call_intrin, call_llvm_intrin

    block = loop.body.block
    lanes = tvm_compat.as_int(loop.extent)
    if not isinstance(block.body, tirx.BufferStore) or lanes is None:
        return None
    if tvm_compat.as_int(loop.min) != 0 or not _is_float32(block.body.value):
        return None
    if not rewrite.is_among(block.body.buffer, params):
        return None
    steps = tirx.Ramp(tirx.const(0, "int32"), tirx.const(1, "int32"), lanes)
    mask = steps < tirx.Broadcast(tirx.Cast("int32", tirx.Min(many, loop.extent)), lanes)
    vector = _Vector(loop, lanes, mask, tuple(params), Analyzer())
    value = vector.of(block.body.value)
    target = vector.element(block.body.buffer, block.body.indices)
    if value is None or target is None:
        return None
    address = call_intrin("handle", "tirx.address_of", target)
    store = tirx.Evaluate(call_llvm_intrin("void", "llvm.masked.store", value, address, mask))
    reads = [vector.region(region) for region in block.reads]
    writes = [vector.region(region) for region in block.writes]
    made = s_tir.SBlock([], reads, writes, str(block.name_hint), store)
    return s_tir.SBlockRealize([], others, made)


def _is_float32(expression: Any) -> bool:
    return str(expression.ty.dtype) == "float32"


@dataclass(frozen=True, slots=True)
class _Vector:
    """The lanes of a vectorised loop, as vector expressions.

    Attributes:
        loop: the loop around the realisation of a block.
        mask: the mask of the lanes that are stored.
    """

    loop: Any
    lanes: int
    mask: Any
    params: tuple[Any, ...]
    analyzer: Any

    def at(self, expression: Any, lane: Any) -> Any:
        """An expression of the block's axes in one lane."""
        placed, variable = rewrite.place_in_loops(self.loop.body, expression), self.loop.loop_var
        return rewrite.substitute(placed, [(variable, rewrite.constant(lane, variable))])

    def of(self, expression: Any) -> Any | None:
        """An expression as a vector of all lanes; None where that is not known to be safe."""
        import tvm
        from tvm import tirx

        if not self._varies(expression):
            return tirx.Broadcast(self.at(expression, 0), self.lanes)
        if isinstance(expression, tvm.ir.TensorLoad):
            return self._read_load(expression)
        if isinstance(expression, (tirx.Add, tirx.Sub, tirx.Mul, tirx.Max, tirx.Min)):
            left, right = self.of(expression.a), self.of(expression.b)
            return None if left is None or right is None else type(expression)(left, right)
        return None

    def element(self, buffer: Any, indices: Any) -> Any | None:
        """The element of the first lane; None where the lanes' elements are not contiguous."""
        from tvm.tirx import BufferLoad

        steps = [self._step(index) for index in indices]
        if steps[:-1] != [0] * (len(steps) - 1) or steps[-1:] != [1]:
            return None
        return BufferLoad(buffer, [self.analyzer.simplify(self.at(i, 0)) for i in indices])

    def region(self, region: Any) -> Any:
        """The union of a region over all lanes."""
        import tvm
        from tvm.tirx import BufferRegion

        ranges = []
        for dim in region.region:
            low, high = self.at(dim.min, 0), self.at(dim.min + dim.extent, self.lanes - 1)
            extent = self.analyzer.simplify(high - low)
            ranges.append(tvm.ir.Range.from_min_extent(self.analyzer.simplify(low), extent))
        return BufferRegion(region.source, ranges)

    def _read_load(self, load: Any) -> Any | None:
        from tvm import tirx
        from tvm.tirx import call_intrin, call_llvm_intrin

        first = self.element(load.source, load.indices)
        if first is None or not _is_float32(load):
            return None
        if load.source.scope() == "local":  # a tile, which has all lanes
            last = first.indices[-1]
            ramp = tirx.Ramp(last, rewrite.constant(1, last), self.lanes)
            return load.source[(*first.indices[:-1], ramp)]
        if not rewrite.is_among(load.source, self.params):
            return None
        address = call_intrin("handle", "tirx.address_of", first)
        nothing = tirx.Broadcast(tirx.const(0.0, "float32"), self.lanes)
        kind = f"float32x{self.lanes}"
        return call_llvm_intrin(kind, "llvm.masked.load", address, self.mask, nothing)

    def _varies(self, expression: Any) -> bool:
        return rewrite.uses(
            rewrite.place_in_loops(self.loop.body, expression), [self.loop.loop_var]
        )

    def _step(self, index: Any) -> int | None:
        """The growth of an index from lane to lane; None where that is not one number."""
        values = [self.at(index, lane) for lane in range(self.lanes)]
        moved = {
            tvm_compat.as_int(self.analyzer.simplify(after - before))
            for before, after in pairwise(values)
        }
        return moved.pop() if len(moved) == 1 else None
