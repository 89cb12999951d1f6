"""The program of a product for Hopper's threads (PTX ISA, "Asynchronous Warpgroup Level Matrix
Instructions", "cp.async.bulk.tensor", "mbarrier").

The first warpgroup of a block copies tiles of both operands into stages of shared memory; each of
the others multiplies rows of its own and stores them, with what the program does to its sums.
Copies fill in zeros beyond a tensor: nothing knows the edges of a shape but the stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spaces.templates.base import Knobs
from spaces.templates.contraction.match import Match
from spaces.templates.tensor_cores import knob_model as k
from spaces.templates.tensor_cores.epilogue import Epilogue
from spaces.templates.tensor_cores.product import Product
from spaces.templates.tensor_cores.results import Results
from spaces.templates.tensor_cores.tensor_map import (
    SWIZZLES,
    UNIT,
    Dimension,
    encode_map,
    multiply,
    read_dimensions,
)

_LOAD = "cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes"
_PRODUCER_REGISTERS, _CONSUMER_REGISTERS = 40, {1: 232, 2: 232, 3: 152}
"""Of a thread once warpgroups have given theirs away; the second by the number of consumers."""
_KEEP = "keep_below_wait"
_KEEP_CODE = f"""
template <class... Sums> static __device__ __forceinline__ void {_KEEP}(Sums&... sums) {{
  ([&] {{ asm volatile("" : "+f"(sums) :: "memory"); }}(), ...);
}}
"""
"""Code that nvcc cannot read sums above: else it moves reads above the wait for the last products,
and an H100 then lacked these. TVM's own `noop_barrier` takes a copy of a sum."""
_KINDS = {"float16": "f16", "bfloat16": "bf16"}
_SWIZZLE = SWIZZLES[k.LINE_BYTES]
"""Of an operand's lines; matrix descriptors number it as tensor maps do, and count in units."""
_PATTERN = k.PATTERN_BYTES // UNIT


def write_product(match: Match, product: Product, knobs: Knobs, multiprocessors: int) -> Any:
    """The PrimFunc of a setting.

    Args:
        match: the program, tidied up.
        multiprocessors: of the device: the blocks of a persistent grid.
    """
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    tile = k.tile_of(knobs)
    with IRBuilder() as builder, T.prim_func():
        T.func_name("main")
        T.func_attr({"tirx.noalias": True})
        parameters = [*match.schedule.mod["main"].params]
        tensors = [T.buffer([*p.shape], str(p.dtype), align=16) for p in parameters]
        tensors = [T.arg(p.name, t) for p, t in zip(parameters, tensors, strict=True)]
        epilogue = Epilogue(match, product.c, [*zip(parameters, tensors, strict=True)])
        _Writer(T, product, tile, epilogue, match.main).write(multiprocessors)
    return builder.get()


@dataclass(frozen=True, slots=True)
class _Side:
    """One operand.

    Attributes:
        turned: whether its rows, or columns, are dense.
        dimensions: of its tensor, the dense one first; `batch` the axes of those after the second.
        rows: of its tile, or columns; `part` those of one copy.
        map: the address of its tensor map.
    """

    operand: int
    turned: bool
    dimensions: tuple[Dimension, ...]
    batch: tuple[int, ...]
    rows: int
    part: int
    map: Any


class _Writer:
    """Writes one program. A is the operand that gives the rows of instructions, B their columns."""

    def __init__(
        self, T: Any, product: Product, tile: k.Tile, epilogue: Epilogue, main: Any
    ) -> None:
        self._t, self._product, self._tile, self._epilogue = T, product, tile, epilogue
        self._extents = [axis.dom.extent for axis in main.iter_vars]
        c = product.c
        order = (c.columns_of, c.rows_of) if tile.swap else (c.rows_of, c.columns_of)
        parts = (k.ROWS * tile.parts, tile.columns)
        rows = (tile.rows, tile.columns)
        self._a, self._b = (self._side(*each) for each in zip(order, rows, parts, strict=True))
        self._steps = self._count(self._extents[product.reduction], tile.depth)
        self._tiles = [
            self._count(self._size(side.operand), side.rows) for side in (self._a, self._b)
        ]
        self._batches = self._int(multiply([self._extents[axis] for axis in product.batch]))

    def _int(self, size: Any) -> Any:
        return size if isinstance(size, int) else self._t.Cast("int32", size)

    def _size(self, operand: int) -> Any:
        return self._int(multiply([self._extents[axis] for axis in self._product.tiled(operand)]))

    def _count(self, size: Any, tile: int) -> Any:
        size = self._int(multiply([size]))
        return (size + tile - 1) // tile

    def _side(self, operand: int, rows: int, part: int) -> _Side:
        """An operand, with the map that its tiles are copied by."""
        T, product, tile = self._t, self._product, self._tile
        dims = [axis.dims[operand] for axis in product.c.axes]
        batch = tuple(axis for axis in product.batch if dims[axis] is not None)
        turned = product.turned[operand]
        tiled, terms = product.tiled(operand), (product.reduction,)
        first = [tiled, terms] if turned else [terms, tiled]
        tensor = self._epilogue.operands[operand]
        found = read_dimensions(tensor, dims, [*first, *((axis,) for axis in batch)])
        box = [k.LINE, tile.depth if turned else part]
        map_ = encode_map(T, tensor, found, box)
        return _Side(operand, turned, found, batch, rows, part, map_)

    def write(self, multiprocessors: int) -> None:
        """Write the program's host code and its threads'."""
        T, tile = self._t, self._tile
        a_tiles, b_tiles = self._tiles
        self._results = Results(T, self._product, tile, self._epilogue, self._extents)
        tiles = a_tiles * b_tiles * self._batches
        blocks = tiles
        if tile.persistent:
            few = isinstance(tiles, int)
            blocks = min(tiles, multiprocessors) if few else T.min(tiles, multiprocessors)
        T.device_entry()
        block = T.cta_id([blocks])
        thread = T.thread_id([tile.threads])
        self._allocate(thread)
        rounds = (tiles - block + blocks - 1) // blocks if tile.persistent else 1
        with T.If(thread < k.WARPGROUP):
            with T.Then():
                T.evaluate(T.ptx["setmaxnreg.dec.sync.aligned.u32"](_PRODUCER_REGISTERS))
                with T.If(thread == 0), T.Then(), T.serial(rounds) as turn:
                    self._produce(turn, block + turn * blocks)
            with T.Else():
                most = _CONSUMER_REGISTERS[tile.consumers]
                T.evaluate(T.ptx["setmaxnreg.inc.sync.aligned.u32"](most))
                sums = T.alloc_buffer((tile.sums,), "float32", scope="local")
                words = [T.alloc_buffer((1,), "uint64", scope="local") for _ in range(2)]
                with T.serial(rounds) as turn:
                    self._consume(thread, turn, block + turn * blocks, sums, words)
                self._results.finish(thread)

    def _allocate(self, thread: Any) -> None:
        """Stages, what the results go through, and the barriers of each stage."""
        T, tile = self._t, self._tile
        pool = T.SMEMPool()
        sizes = (self._a.rows * tile.depth, self._b.rows * tile.depth)
        self._stages = [
            pool.alloc((tile.stages, size), self._product.kind, align=k.PATTERN_BYTES)
            for size in sizes
        ]
        self._results.allocate(pool)
        self._full, self._empty = (pool.alloc((tile.stages,), "uint64", align=8) for _ in range(2))
        pool.commit()
        with T.If(thread == 0), T.Then():
            for stage in range(tile.stages):
                for barrier, count in ((self._full, 1), (self._empty, tile.consumers)):
                    T.evaluate(
                        T.ptx.mbarrier.init.shared.b64(barrier.ptr_to([stage]), T.uint32(count))
                    )
        T.evaluate(T.ptx.fence.mbarrier_init.release.cluster())
        T.evaluate(T.cuda.cta_sync())

    def _place(self, number: Any) -> tuple[Any, Any, dict[int, Any]]:
        """The tile of a number: that of A, that of B, and the place on each axis of the batch.

        Some tiles of A follow one another, so that blocks that run together share tiles of B.
        """
        T = self._t
        a_tiles, b_tiles = self._tiles
        whole, group = a_tiles * b_tiles, self._tile.group
        rest = T.Bind(number % whole)
        first = T.Bind(rest // (group * b_tiles) * group)
        size = T.Bind(T.min(a_tiles - first, group))
        inside = T.Bind(rest % (group * b_tiles))
        batch, places = number // whole, {}
        for axis in reversed(self._product.batch):
            size_of = self._int(multiply([self._extents[axis]]))
            places[axis] = T.Bind(batch % size_of)
            batch = batch // size_of
        return T.Bind(first + inside % size), T.Bind(inside // size), places

    def _produce(self, turn: Any, number: Any) -> None:
        """Copy the stages of a tile as they come free."""
        T, tile = self._t, self._tile
        a, b, batch = self._place(number)
        with T.serial(self._steps) as step:
            count = T.Bind(turn * self._steps + step)
            stage = T.Bind(count % tile.stages)
            T.evaluate(
                T.cuda.mbarrier_wait(self._empty.ptr_to([stage]), (count // tile.stages % 2) ^ 1)
            )
            full = self._full.ptr_to([stage])
            T.evaluate(T.ptx.mbarrier.arrive.expect_tx.shared.b64(full, T.uint32(tile.stage_bytes)))
            for side, place, to in zip((self._a, self._b), (a, b), self._stages, strict=True):
                self._copy(side, to, stage, place * side.rows, step * tile.depth, batch, full)

    def _copy(
        self, side: _Side, to: Any, stage: Any, row: Any, term: Any, batch: Any, full: Any
    ) -> None:
        """Copy one operand's tile, in pieces that lie one behind the other."""
        T, tile = self._t, self._tile
        places = [batch[axis] for axis in side.batch]
        if side.turned:
            pieces = [[row + at, term] for at in range(0, side.rows, k.LINE)]
        else:
            pieces = [
                [term + line, row + at]
                for at in range(0, side.rows, side.part)
                for line in range(0, tile.depth, k.LINE)
            ]
        size = side.rows * tile.depth // len(pieces)
        load = T.ptx[_LOAD.format(len(side.dimensions))]
        for number, place in enumerate(pieces):
            where = to.ptr_to([stage, number * size])
            T.evaluate(load(where, side.map, *place, *places, full))

    def _consume(
        self, thread: Any, turn: Any, number: Any, sums: Any, words: Sequence[Any]
    ) -> None:
        """Multiply the stages of a tile as they are filled, and store its sums."""
        T, tile = self._t, self._tile
        consumer = T.Bind(thread // k.WARPGROUP - 1)
        a, b, batch = self._place(number)
        with T.unroll(tile.sums) as i:
            T.buffer_store(sums, T.float32(0), [i])
        with T.serial(self._steps) as step:
            count = T.Bind(turn * self._steps + step)
            stage = T.Bind(count % tile.stages)
            T.evaluate(T.cuda.mbarrier_wait(self._full.ptr_to([stage]), count // tile.stages % 2))
            self._multiply(consumer, stage, sums, words)
            T.evaluate(T.ptx.wgmma.wait_group.sync.aligned(1))
            with T.If(T.And(thread % k.WARPGROUP == 0, step > 0)), T.Then():
                self._free(count - 1)
        T.evaluate(T.ptx.wgmma.wait_group.sync.aligned(0))
        kept = [sums[i] for i in range(tile.sums)]
        T.evaluate(T.cuda.func_call(_KEEP, *kept, source_code=_KEEP_CODE))
        with T.If(thread % k.WARPGROUP == 0), T.Then():
            self._free(turn * self._steps + self._steps - 1)
        self._results.store(thread, consumer, a * self._a.rows, b * self._b.rows, batch, sums)

    def _free(self, count: Any) -> None:
        """Let a stage be filled anew."""
        T = self._t
        barrier = self._empty.ptr_to([count % self._tile.stages])
        T.evaluate(T.ptx.mbarrier.arrive.shared.b64(barrier, T.uint32(1)))

    def _multiply(self, consumer: Any, stage: Any, sums: Any, words: Sequence[Any]) -> None:
        """The instructions of one stage, for all rows of a consumer."""
        T, tile = self._t, self._tile
        kind = _KINDS[self._product.kind]
        multiply = T.ptx[f"wgmma.mma_async.sync.aligned.m64n{tile.columns}k16.f32.{kind}.{kind}"]
        each = tile.columns // 2
        own_rows = k.ROWS * tile.parts
        firsts = (consumer * own_rows * tile.depth, 0)
        for side, word, buffer, first in zip(
            (self._a, self._b), words, self._stages, firsts, strict=True
        ):
            leading = tile.depth * k.LINE_BYTES // UNIT if side.turned else 1
            where = buffer.ptr_to([stage, first])
            describe = T.cuda.wgmma.encode_matrix_descriptor
            T.evaluate(describe(word.ptr_to([0]), where, leading, _PATTERN, _SWIZZLE))
        T.evaluate(T.ptx.wgmma.fence.sync.aligned())
        turned = (int(self._a.turned), int(self._b.turned))
        for part in range(tile.parts):
            own = [sums[part * each + i] for i in range(each)]
            for term in range(0, tile.depth, k.TERMS):
                a = words[0][0] + T.uint64(self._offset(self._a, own_rows, part, term))
                b = words[1][0] + T.uint64(self._offset(self._b, tile.columns, 0, term))
                T.evaluate(multiply(*own, a, b, T.ptx.pred(1), 1, 1, *turned))
        T.evaluate(T.ptx.wgmma.commit_group.sync.aligned())

    def _offset(self, side: _Side, lines: int, part: int, term: int) -> Any:
        """Units of 16 bytes from the start of an operand's tile to what an instruction reads.

        Args:
            lines: of each piece that holds `LINE` terms, where these are dense.
        """
        if side.turned:
            lines_before = part * self._tile.depth + term
            return lines_before * k.LINE_BYTES // UNIT
        lines_before = term // k.LINE * lines + part * k.ROWS
        return (lines_before * k.LINE_BYTES + term % k.LINE * k.ITEM) // UNIT
