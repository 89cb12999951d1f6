"""Accumulators of a tile in a buffer of constant size: buffer compaction for ragged tiles.

A scheduled program accumulates in a tensor as large as its result, of which TVM allocates the
region that one tile accesses. Where tiles are ragged, that region is the smaller of a tile and a
symbolic extent, and a buffer of unknown size is never kept in registers. Here accumulators are
indexed from the first element of their tile, and the buffer holds a full tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.passes.tile_marks import SKIPPED, TILE, Loops, each_block, reach, with_tiles

_LOCAL = "local"


@dataclass(frozen=True, slots=True)
class _Sums:
    """The accumulators of one tile.

    Attributes:
        whole: the local tensor that the program accumulates in; `tensor` replaces it.
        first: index of the tile's first element, in variables of the loops around it.
    """

    whole: Any
    first: tuple[Any, ...]
    tensor: Any


@dataclass(slots=True)
class _Touched:
    """The region of a tensor that blocks of a tile access: its first element, and its extent in
    each dimension."""

    first: list[Any]
    extents: list[int]
    times: int = 1


def with_tile_sums(function: Any) -> Any:
    """A scheduled PrimFunc that computes the same, with the accumulators of marked tiles in buffers
    of one tile each."""
    made: list[_Sums] = []

    def changed(marked: Any, analyzer: Any) -> Any:
        whole = int(marked.annotations[TILE]) == SKIPPED  # its tile has one size already
        found = [] if whole else _sums(marked, function, analyzer)
        if not found:
            return marked
        made.extend(found)
        body = each_block(marked.body, lambda realize, _: _move(realize, found, analyzer))
        return rewrite.copy_loop(marked, body)

    changed_function = with_tiles(function, changed)
    if not made:
        return function
    return changed_function.with_body(_allocate(changed_function.body, made))


def _sums(marked: Any, function: Any, analyzer: Any) -> list[_Sums]:
    """The local tensors that are used in one tile only, in a region of constant extents."""
    from tvm.tirx import decl_buffer

    touched: list[tuple[Any, _Touched | None]] = []

    def look(realize: Any, loops: Loops) -> Any:
        for tensor, indices in _accesses(realize.block):
            if tensor.scope() == _LOCAL:
                here = _touches(
                    [rewrite.place_in_loops(realize, i) for i in indices], loops, analyzer
                )
                _take(touched, tensor, here, analyzer)
        return realize

    each_block(marked.body, look)
    found = []
    for whole, part in touched:
        if part is None or part.times != _uses(function, whole):
            continue
        name = f"{whole.name}_tile"
        tensor = decl_buffer(part.extents, str(whole.dtype), name, scope=_LOCAL)
        found.append(_Sums(whole, tuple(part.first), tensor))
    return found


def _accesses(statement: Any) -> list[tuple[Any, Any]]:
    """Tensors and indices of all loads and stores."""
    import tvm
    import tvm_ffi

    found: list[tuple[Any, Any]] = []

    def load(node: Any) -> None:
        found.append((node.source, node.indices))

    def store(node: Any) -> None:
        found.append((node.buffer, node.indices))

    tvm_ffi.structural_walk(statement, [(tvm.ir.TensorLoad, load), (tvm.tirx.BufferStore, store)])
    return found


def _uses(function: Any, tensor: Any) -> int:
    return sum(other.same_as(tensor) for other, _ in _accesses(function.body))


def _touches(indices: Sequence[Any], loops: Loops, analyzer: Any) -> _Touched | None:
    """The region that an access covers in all steps of some loops; None where it is not a box of
    constant extents."""
    first, extents = [], []
    for ends in (reach(index, loops, analyzer) for index in indices):
        span = None if ends is None else tvm_compat.as_int(analyzer.simplify(ends[1] - ends[0]))
        if ends is None or span is None:
            return None
        first.append(ends[0])
        extents.append(span + 1)
    return _Touched(first, extents)


def _take(
    touched: list[tuple[Any, _Touched | None]], tensor: Any, here: _Touched | None, analyzer: Any
) -> None:
    """Unite the region of an access with those of other accesses to the same tensor."""
    for place, (other, known) in enumerate(touched):
        if not other.same_as(tensor):
            continue
        if here is None or known is None or not _is_same(here.first, known.first, analyzer):
            touched[place] = (tensor, None)
            return
        known.extents = [max(pair) for pair in zip(known.extents, here.extents, strict=True)]
        known.times += 1
        return
    touched.append((tensor, here))


def _is_same(first: Sequence[Any], other: Sequence[Any], analyzer: Any) -> bool:
    return all(analyzer.can_prove_equal(a, b) for a, b in zip(first, other, strict=True))


def _of(tensor: Any, found: Sequence[_Sums]) -> _Sums | None:
    """The accumulators that replace a tensor; None where none do."""
    return next((sums for sums in found if sums.whole.same_as(tensor)), None)


def _move(realize: Any, found: Sequence[_Sums], analyzer: Any) -> Any:
    """A block realisation with accumulators indexed from their tile's first element."""
    import tvm
    from tvm import tirx
    from tvm_ffi import structural_mutate

    def within(sums: _Sums, indices: Any) -> list[Any]:
        placed = [rewrite.place_in_loops(realize, index) for index in indices]
        pairs = zip(placed, sums.first, strict=True)
        return [analyzer.simplify(index - first) for index, first in pairs]

    def load(node: Any, mutator: Any) -> Any:
        sums = _of(node.source, found)
        if sums is None:
            return mutator.default_mutate(node)
        return sums.tensor[tuple(within(sums, node.indices))]

    def store(node: Any, mutator: Any) -> Any:
        sums, value = _of(node.buffer, found), mutator.mutate(node.value)
        if sums is None:
            return tirx.BufferStore(node.buffer, value, node.indices)
        return tirx.BufferStore(sums.tensor, value, within(sums, node.indices))

    def region(node: Any) -> Any:
        sums = _of(node.source, found)
        if sums is None:
            return node
        starts = within(sums, [dim.min for dim in node.region])
        pairs = zip(starts, node.region, strict=True)
        ranges = [tvm.ir.Range.from_min_extent(start, dim.extent) for start, dim in pairs]
        return tirx.BufferRegion(sums.tensor, ranges)

    block = realize.block
    kinds = [(tvm.ir.TensorLoad, load), (tirx.BufferStore, store)]
    made = rewrite.change_block(
        block,
        reads=[region(r) for r in block.reads],
        writes=[region(r) for r in block.writes],
        body=structural_mutate(block.body, kinds),
    )
    return tvm.s_tir.SBlockRealize(realize.iter_values, realize.predicate, made)


def _allocate(body: Any, made: Sequence[_Sums]) -> Any:
    """A program that allocates the accumulators of tiles in place of whole tensors."""
    import tvm
    from tvm_ffi import structural_mutate

    def block(node: Any, mutator: Any) -> Any:
        inside = mutator.default_mutate(node)
        pairs = [(buffer, _of(buffer, made)) for buffer in node.alloc_buffers]
        buffers = [buffer if sums is None else sums.tensor for buffer, sums in pairs]
        return rewrite.change_block(inside, buffers=buffers)

    return structural_mutate(body, [(tvm.s_tir.SBlock, block)])
