"""Products of packed weights whose rows may be rounded to bytes, on CPUs that multiply bytes.

A file says with `accuracy_level` 4 of `MatMulNBits` that rows may have 8 bits. Each block of a row
is rounded by a scale of its own, the largest number over 127, as onnxruntime does it; products of a
block are summed in int32, and blocks in float32. In a block the terms lie in the order in which the
codes of four neighbouring bytes are taken apart: first all in their low bits, then those above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.ir.element_types import WIDE
from spaces.lowering.relax_rewrite import FUSES, FUSES_AFTER
from spaces.lowering.weights.codes import Codes, take_code
from spaces.lowering.weights.constants import GRAPH, UNPACKS
from spaces.targets.cpu import GROUP

BLOCKS, ROUNDS_ROWS = "tuner.blocks", "tuner.rows_in_bytes"
"""Attributes of a program that unpacks a weight in blocks: bits, numbers of a block, rows and
columns of the weight; and whether its product may round its rows. Its operands: codes, scales, and
zero points if any."""
_MOST_ROWS, _ROWS = 8, 4
"""Of a tile of rows, which are padded so that tiles are full; of a number that is not known. A
product reads no more of them than there are, see `spaces.templates.block_products`."""
_LANES = 16
"""Columns are padded to a multiple."""
_TOP = 127.0


@dataclass(frozen=True, slots=True)
class _Weight:
    """A packed weight, (columns, depth), and how it is packed."""

    bits: int
    block: int
    depth: int
    columns: int
    operands: tuple[Any, ...]

    @property
    def blocks(self) -> int:
        """Of a column."""
        return -(-self.depth // self.block)

    def find_term(self, place: Any) -> Any:
        """The term that is at a place, in the order of the terms."""
        each = 8 // self.bits
        run = GROUP * each
        return place // run * run + place % GROUP * each + place % run // GROUP

    def read(self, packed: Any, column: Any, place: Any) -> Any:
        """The code at a place, of uint8."""
        run = GROUP * (8 // self.bits)
        byte = packed[column, place // run * GROUP + place % GROUP]
        return take_code(byte, "uint8", place % run // GROUP, self.bits)


def allow_rounding(module: Any) -> Any:
    """A module all of whose products of weights in blocks may round their rows."""

    def allow(function: Any) -> Any:
        inside = tvm_compat.attribute(function, BLOCKS) is not None
        return function.with_attr(ROUNDS_ROWS, True) if inside else function

    return rewrite.with_prim_funcs(module, allow)


def round_rows(module: Any) -> Any:
    """A module whose products of weights that allow it have rows of bytes."""
    from tvm.relax.analysis import get_var2val
    from tvm.relax.expr_functor import PyExprMutator, mutator

    graph = module[GRAPH]
    values = get_var2val(graph)
    weights = {var: w for var, value in values.items() if (w := _read(module, value)) is not None}
    if not weights:
        return module

    @mutator
    class Rounder(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            changed = super().visit_call_(call)
            if not _is_product(call, weights):
                return changed
            return _emit(self.builder_, changed.args[0], weights[call.args[1]])

    rounder = Rounder(module)
    rounder.builder_.update_func(module.get_global_var(GRAPH), rounder.visit_expr(graph))
    return rounder.builder_.get()


def _read(module: Any, value: Any) -> _Weight | None:
    if not tvm_compat.is_call_tir(value):
        return None
    said, rounds = (
        tvm_compat.attribute(module[value.args[0]], name) for name in (BLOCKS, ROUNDS_ROWS)
    )
    if said is None or not rounds:
        return None
    bits, block, depth, columns = map(int, said)
    operands = tuple(value.args[1].fields)
    if not all(tvm_compat.is_constant(operand) for operand in operands):
        return None  # nothing can be packed ahead
    return _Weight(bits, block, depth, columns, operands)


def _is_product(call: Any, weights: Any) -> bool:
    if tvm_compat.operator_name(call) != "relax.matmul" or call.args[1] not in weights:
        return False
    return len(tvm_compat.tensor_dims(call.args[0]) or ()) > 1


def _emit(builder: Any, x: Any, weight: _Weight) -> Any:
    """The product of rows with a weight, in float32."""
    *front, rows, _ = x.ty.shape.values
    known = tvm_compat.as_int(rows)
    height = _ROWS if known is None else min(_MOST_ROWS, 1 << (known - 1).bit_length())
    tiles = (rows + (height - 1)) // height

    def emit(compute: Any, *operands: Any, **attrs: Any) -> Any:
        name = compute.__name__
        return builder.emit_te(compute, *operands, primfunc_name_hint=name, primfunc_attrs=attrs)

    def row_scales(x: Any) -> Any:
        return _scales(x, weight, (*front, tiles, height))

    def row_bytes(x: Any, scales: Any) -> Any:
        return _bytes(x, scales, weight)

    def row_sums(rounded: Any, scales: Any) -> Any:
        return _sums(rounded, scales, weight)

    def product_of_bytes(rounded: Any, scales: Any, sums: Any, *packed: Any) -> Any:
        product = _product(rounded, scales, sums, packed, weight)
        return _cut(product, (*front, rows, weight.columns))

    scales = emit(row_scales, x)
    rounded = emit(row_bytes, x, scales)
    sums = emit(row_sums, rounded, scales)
    attrs = {UNPACKS: True, FUSES: FUSES_AFTER}
    return emit(product_of_bytes, rounded, scales, sums, *weight.operands, **attrs)


def _read_row(x: Any, place: Sequence[Any], weight: _Weight) -> Any:
    """A number of a row of a tile in float32; zero beyond the last row and term."""
    from tvm import tirx

    *front, tile, row, term, height = place
    row = tile * height + row
    inside = tirx.all(row < x.shape[-2], term < weight.depth)
    zero = tirx.const(0.0, WIDE)
    return tirx.if_then_else(inside, x[(*front, row, term)].astype(WIDE), zero)


def _scales(x: Any, weight: _Weight, rows: Sequence[Any]) -> Any:
    """A scale for each block of a row: NaN where a number of it is infinite or none."""
    from tvm import te, tirx

    shape = (*rows, weight.blocks)
    top, total = (te.reduce_axis((0, weight.block), name) for name in ("top", "total"))

    def number(place: Sequence[Any], axis: Any) -> Any:
        return _read_row(x, (*place[:-1], place[-1] * weight.block + axis, rows[-1]), weight)

    most = te.compute(shape, lambda *i: te.max(tirx.abs(number(i, top)), axis=top), name="most")
    whole = te.compute(
        shape,
        lambda *i: te.sum(tirx.abs(number(i, total)) - most(*i), axis=total),
        name="whole",
    )
    none = tirx.const(float("nan"), WIDE)
    return te.compute(
        shape, lambda *i: tirx.Select(tirx.isnan(whole(*i)), none, most(*i) / _TOP), name="scale"
    )


def _bytes(x: Any, scales: Any, weight: _Weight) -> Any:
    from tvm import te, tirx

    height = scales.shape[-2]

    def round_number(*place: Any) -> Any:
        *front, at = place
        scale = scales(*front, at // weight.block)
        number = _read_row(x, (*front, weight.find_term(at), height), weight) / scale
        number = tirx.Select(scale > 0.0, number, tirx.const(0.0, WIDE))
        return tirx.nearbyint(tirx.max(tirx.min(number, _TOP), -_TOP)).astype("int8")

    shape = (*scales.shape[:-1], weight.blocks * weight.block)
    return te.compute(shape, round_number, name="rounded")


def _sums(rounded: Any, scales: Any, weight: _Weight) -> Any:
    from tvm import te

    axis = te.reduce_axis((0, weight.block), "term")

    def add(*place: Any) -> Any:
        *front, block = place
        return te.sum(rounded(*front, block * weight.block + axis).astype("int32"), axis=axis)

    totals = te.compute(scales.shape, add, name="totals")
    return te.compute(
        scales.shape, lambda *i: totals(*i).astype(WIDE) * scales(*i), name="row_sums"
    )


def _product(rounded: Any, scales: Any, sums: Any, packed: Sequence[Any], weight: _Weight) -> Any:
    """Sums over blocks of the scaled sums of products of bytes, in tiles of rows."""
    from tvm import te, tirx

    codes_of, weight_scales, *zeros_of = packed
    columns = -(-weight.columns // _LANES) * _LANES

    def of_columns(name: str, size: int, value: Any, kind: str) -> Any:
        """A number for each column, and each of `size` more; zero beyond the last column."""

        def read(column: Any, place: Any) -> Any:
            found = value(column, place).astype(kind)
            if columns == weight.columns:
                return found
            return tirx.if_then_else(column < weight.columns, found, tirx.const(0, kind))

        return te.compute((columns, size), read, name=name)

    codes = of_columns(
        "codes", weight.blocks * weight.block, lambda n, at: weight.read(codes_of, n, at), "uint8"
    )
    steps = of_columns("steps", weight.blocks, lambda n, b: weight_scales[n, b], WIDE)
    middle = 2.0 ** (weight.bits - 1)
    zeros = None
    if zeros_of:
        points = Codes(zeros_of[0], weight.bits)
        zeros = of_columns(
            "zeros", weight.blocks, lambda n, b: points.read(points.tensor, (n, b)), WIDE
        )
    term = te.reduce_axis((0, weight.block), "term")
    dots = te.compute(
        (weight.blocks, *rounded.shape[:-1], columns),
        lambda b, *i: te.sum(
            rounded(*i[:-1], b * weight.block + term).astype("int32")
            * codes(i[-1], b * weight.block + term).astype("int32"),
            axis=term,
        ),
        name="dots",
    )
    block = te.reduce_axis((0, weight.blocks), "block")

    def add(*place: Any) -> Any:
        *row, n = place
        dot = dots(block, *place).astype(WIDE) * scales(*row, block)
        zero = middle if zeros is None else zeros(n, block)
        return te.sum((dot - zero * sums(*row, block)) * steps(n, block), axis=block)

    return te.compute((*rounded.shape[:-1], columns), add, name="product")


def _cut(product: Any, shape: Sequence[Any]) -> Any:
    """The rows of all tiles, without padding."""
    from tvm import te

    height = product.shape[-2]

    def read(*place: Any) -> Any:
        *front, row, column = place
        return product(*front, row // height, row % height, column)

    return te.compute([*shape], read, name="rows")
