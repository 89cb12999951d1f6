"""Descriptions and code of the VNNI intrinsics, built without parsing TVMScript, which is slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from spaces.intrinsics.vnni import GROUP, Dot, Mix

_DTYPES = {"u": "uint8", "s": "int8"}
_TOP_BITS = -0x7F7F7F80
_ONES = 0x01010101
_NARROWEST = 4


def description(intrinsic: Dot | Mix) -> Any:
    """The PrimFunc that describes the computation of an intrinsic."""
    return _function(_code(intrinsic).describe)


def implementation(intrinsic: Dot | Mix) -> Any:
    """The PrimFunc that implements an intrinsic."""
    return _function(_code(intrinsic).implement)


def _code(intrinsic: Dot | Mix) -> _DotCode | _MixCode:
    return _DotCode(intrinsic) if isinstance(intrinsic, Dot) else _MixCode(intrinsic)


def _function(body: Callable[[], None]) -> Any:
    from tvm.script.ir_builder import IRBuilder
    from tvm.tirx.script import builder as tir

    with IRBuilder() as build, tir.prim_func(s_tir=True):
        tir.func_name("main")
        body()
    return build.get()


class _Code:
    """The common part of the intrinsics: numbers of the program's index type, vectors."""

    def __init__(self, index_bits: int) -> None:
        from tvm.tirx.script import builder

        self.tir: Any = builder
        self._index_dtype = f"int{index_bits}"

    def at(self, *values: int) -> list[Any]:
        """Indices or extents."""
        from tvm.tirx import IntImm

        return [IntImm(self._index_dtype, value) for value in values]

    def parameter(
        self, name: str, shape: tuple[int, ...], dtype: str, *, apart: bool, scope: str = "global"
    ) -> Any:
        """A buffer; where `apart`, its outer dimensions have any strides."""
        from tvm.tirx import Var

        strides = None
        if apart:
            free = [Var(f"{name}_{d}", self._index_dtype) for d in range(len(shape) - 1)]
            strides = [*free, *self.at(1)]
        return self.tir.arg(
            name,
            self.tir.buffer(self.at(*shape), dtype, strides=strides, offset_factor=1, scope=scope),
        )

    def whole(self, buffer: Any) -> Any:
        """All of a buffer, as a region."""
        zero = self.at(0)[0]
        return buffer[tuple(slice(zero, dim) for dim in buffer.shape)]

    def span(self, start: int, lanes: int) -> Any:
        """The indices of a vector."""
        first, stride = self.at(start, 1)
        return self.tir.ramp(first, stride, lanes)

    def splat(self, value: Any, lanes: int) -> Any:
        """A vector of equal 32-bit numbers."""
        number = self.tir.int32(value) if isinstance(value, int) else value
        return self.tir.broadcast(number, lanes)

    def as_bytes(self, words: Any, lanes: int) -> Any:
        """A vector of 32-bit numbers as its bytes."""
        return self.tir.reinterpret(f"int8x{lanes * GROUP}", words)


class _DotCode(_Code):
    def __init__(self, dot: Dot) -> None:
        super().__init__(dot.index_bits)
        self._dot = dot
        self._row_dtype, self._column_dtype = (_DTYPES[sign] for sign in dot.signs)
        self._turned = dot.signs[0] == dot.signs[1]

    def describe(self) -> None:
        dot, tir = self._dot, self.tir
        # TVM leaves loops of one step out when it compares programs.
        with self._block() as (rows, columns, sums):
            spatial = [dot.rows, dot.width][dot.rows == 1 :]
            with tir.grid(*self.at(*spatial, dot.depth)) as (*loops, k), tir.sblock("update"):
                turn = -1 if dot.columns_first else 1
                *axes, vk = tir.axis.remap("S" * len(loops) + "R", [*loops[::turn], k])
                vi, vj = [*self.at(0), *axes[::turn]][-2:]
                place = [vi * self.at(dot.step)[0] if dot.step > 1 else vi, vk]
                if not dot.step:
                    place = [vk // GROUP, vi, vk % GROUP]
                factors = [
                    tir.cast(rows[tuple(place)], "int32"),
                    tir.cast(columns[vk // GROUP, vj, vk % GROUP], "int32"),
                ][:: -1 if dot.column_factor_first else 1]
                tir.buffer_store(sums, sums[vi, vj] + factors[0] * factors[1], [vi, vj])

    def implement(self) -> None:
        dot, tir = self._dot, self.tir
        with self._block() as (rows, columns, sums):
            strip = None
            if self._turned and dot.step:
                for row in range(dot.rows):
                    self._correct(sums, row, self._row_sum(rows, row))
            elif self._turned:
                strip = self._zeros(dot.rows)
            with tir.serial(*self.at(0, dot.groups // dot.unroll)) as turn:
                for part in range(dot.unroll):
                    group = turn * self.at(dot.unroll)[0] + self.at(part)[0]
                    self._step(rows, columns, sums, group)
                    if strip is not None:
                        self._add_up(
                            strip, rows.vload([group, *self.at(0, 0)], self._raw(dot.rows))
                        )
            if strip is not None:
                for row in range(dot.rows):
                    self._correct(sums, row, strip[self.at(row)[0]])

    @contextmanager
    def _block(self) -> Iterator[tuple[Any, Any, Any]]:
        dot, tir = self._dot, self.tir
        shape: tuple[int, ...] = (dot.groups, dot.rows, GROUP)
        if dot.step:
            shape = ((dot.rows - 1) * dot.step + 1, dot.depth)
        rows = self.parameter("rows", shape, self._row_dtype, apart=dot.step > 0)
        panel = (dot.groups, dot.width, GROUP)
        columns = self.parameter("columns", panel, self._column_dtype, apart=False)
        sums = self.parameter("sums", (dot.rows, dot.width), "int32", apart=True, scope="local")
        with tir.sblock("root"):
            factors = [self.whole(rows), self.whole(columns)]
            if dot.column_factor_first:
                factors.reverse()
            tir.reads(self.whole(sums), *factors)
            tir.writes(self.whole(sums))
            yield rows, columns, sums

    def _step(self, rows: Any, columns: Any, sums: Any, group: Any) -> None:
        """Four products for each sum of the tile."""
        dot, tir = self._dot, self.tir
        for row in range(dot.rows):
            for vector in range(dot.vectors):
                place = [*self.at(row), self.span(vector * dot.lanes, dot.lanes)]
                start = [group, *self.at(vector * dot.lanes, 0)]
                column = columns.vload(start, self._raw(dot.lanes, self._column_dtype))
                if self._turned:
                    words = tir.reinterpret(f"int32x{dot.lanes}", column)
                    turned = tir.bitwise_xor(words, self.splat(_TOP_BITS, dot.lanes))
                    column = self.as_bytes(turned, dot.lanes)
                word = self.splat(self._word(rows, row, group), dot.lanes)
                factors = [column, self.as_bytes(word, dot.lanes)]
                if dot.signs[0] == "u":
                    factors.reverse()
                tir.buffer_store(sums, self._dot4(sums[tuple(place)], *factors), place)

    def _dot4(self, total: Any, unsigned: Any, signed: Any) -> Any:
        """A vector of sums, with four more products added to each."""
        lanes = int(total.ty.dtype.lanes)
        name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
        return self._llvm(f"int32x{lanes}", name, total, unsigned, signed)

    def _llvm(self, dtype: str, name: str, *operands: Any) -> Any:
        number = self.tir.llvm_lookup_intrinsic_id(name)
        return self.tir.call_llvm_pure_intrin(dtype, number, *operands)

    def _word(self, rows: Any, row: int, group: Any) -> Any:
        """Four neighbours of a row as one number."""
        place = [*self.at(row * self._dot.step), group * self.at(GROUP)[0]]
        if not self._dot.step:
            place = [group, *self.at(row, 0)]
        return self.tir.reinterpret("int32", rows.vload(place, self._raw(1)))

    def _raw(self, words: int, dtype: str | None = None) -> str:
        """The type of a vector of `words` words of bytes, by default of the row operand's."""
        return f"{dtype or self._row_dtype}x{words * GROUP}"

    def _row_sum(self, rows: Any, row: int) -> Any:
        """A row's sum, times 128 where it is signed."""
        dot, tir = self._dot, self.tir
        wide = dot.groups // dot.lanes
        start = self.at(row * dot.step)
        total = self.tir.int32(0)
        if wide:
            sums = self._zeros(dot.lanes)
            with tir.serial(*self.at(0, wide)) as piece:
                place = [*start, piece * self.at(dot.lanes * GROUP)[0]]
                self._add_up(sums, rows.vload(place, self._raw(dot.lanes)))
            total = self._across(sums[self.span(0, dot.lanes)])
        done = wide * dot.lanes
        narrow = self.splat(0, _NARROWEST)
        while dot.groups - done >= _NARROWEST:
            place = [*start, *self.at(done * GROUP)]
            narrow = self._more(narrow, rows.vload(place, self._raw(_NARROWEST)))
            done += _NARROWEST
        total = total + self._across(narrow)
        while done < dot.groups:  # the same in all lanes: one is as good as any other
            word = self.splat(self._word(rows, row, self.at(done)[0]), _NARROWEST)
            single = self._more(self.splat(0, _NARROWEST), self.as_bytes(word, _NARROWEST))
            total = total + tir.Shuffle([single], self.at(0))
            done += 1
        return total

    def _zeros(self, lanes: int) -> Any:
        made = self.tir.alloc_buffer(tuple(self.at(lanes)), "int32", scope="local")
        self.tir.buffer_store(made, self.splat(0, lanes), [self.span(0, lanes)])
        return made

    def _add_up(self, sums: Any, values: Any) -> None:
        place = self.span(0, int(sums.shape[0]))
        self.tir.buffer_store(sums, self._more(sums[place], values), [place])

    def _more(self, total: Any, values: Any) -> Any:
        """A vector with sums of four neighbours added, times 128 where these are signed."""
        lanes = int(total.ty.dtype.lanes)
        if self._dot.signs[0] == "s":
            return self._dot4(total, self.as_bytes(self.splat(_TOP_BITS, lanes), lanes), values)
        return self._dot4(total, values, self.as_bytes(self.splat(_ONES, lanes), lanes))

    def _across(self, vector: Any) -> Any:
        lanes = int(vector.ty.dtype.lanes)
        return self._llvm("int32", f"llvm.vector.reduce.add.v{lanes}i32", vector)

    def _correct(self, sums: Any, row: int, row_sum: Any) -> None:
        """Subtract from a row's sums the excess that flipping the columns' top bits added."""
        dot = self._dot
        signed = dot.signs[0] == "s"
        excess = row_sum if signed else row_sum * self.tir.int32(-128)
        for vector in range(dot.vectors):
            place = [*self.at(row), self.span(vector * dot.lanes, dot.lanes)]
            total = sums[tuple(place)] - self.splat(excess, dot.lanes)
            self.tir.buffer_store(sums, total, place)


class _MixCode(_Code):
    def __init__(self, mix: Mix) -> None:
        super().__init__(mix.index_bits)
        self._mix = mix

    def describe(self) -> None:
        tir = self.tir
        extents = self.at(GROUP, self._mix.lanes)
        with self._block() as (apart, mixed), tir.grid(*extents) as axes, tir.sblock("copy"):
            vi, vj = tir.axis.remap("SS", [*axes])
            tir.buffer_store(mixed, apart[vi, vj], [vj, vi])

    def implement(self) -> None:
        lanes = self._mix.lanes
        dtype = f"{self._mix.dtype}x{lanes}"
        order = self.at(*(part * lanes + lane for lane in range(lanes) for part in range(GROUP)))
        with self._block() as (apart, mixed):
            parts = [apart.vload(self.at(part, 0), dtype) for part in range(GROUP)]
            vector = self.tir.Shuffle(parts, order)
            place = [*self.at(0), self.span(0, lanes * GROUP)]
            self.tir.buffer_store(mixed, vector, place)

    @contextmanager
    def _block(self) -> Iterator[tuple[Any, Any]]:
        lanes, dtype, tir = self._mix.lanes, self._mix.dtype, self.tir
        apart = self.parameter("apart", (GROUP, lanes), dtype, apart=True)
        mixed = self.parameter("mixed", (lanes, GROUP), dtype, apart=False)
        with tir.sblock("root"):
            tir.reads(self.whole(apart))
            tir.writes(self.whole(mixed))
            yield apart, mixed
