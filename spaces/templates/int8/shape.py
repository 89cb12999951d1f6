"""Facts about a contraction that the template of 8-bit products needs besides its shape."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from spaces.intrinsics.vnni import GROUP
from spaces.ir.affine import Index, read_index
from spaces.templates.contraction.match import Match, describe
from spaces.templates.contraction.shape import Contraction

_SIGNS = {"int8": "s", "uint8": "u"}


@dataclass(frozen=True, slots=True)
class Products:
    """A sum of products of 8-bit integers.

    Attributes:
        contraction: a contraction with one row axis; all other candidates for it are outer axes.
        signs: see `spaces.intrinsics.vnni.Dot`.
        depth_axis: the innermost reduction axis, done in groups.
        step: distance between rows in the row operand, if it can be read in place: then its last
            two dimensions are rows and depth. Otherwise 0: it must be packed.
        column_factor_first: whether the program multiplies columns by rows.
        index_bits: bits of the program's loop variables.
    """

    contraction: Contraction
    signs: str
    depth_axis: int
    step: int
    column_factor_first: bool
    index_bits: int

    @property
    def depth(self) -> int:
        """Products of the innermost sum."""
        return self.contraction.axes[self.depth_axis].extent

    @property
    def turned(self) -> bool:
        """Whether both operands have the same signedness; then each tile needs sums of its rows."""
        return self.signs[0] == self.signs[1]


def products(match: Match) -> list[Products]:
    """The ways to see a contraction as an int8 matrix product; empty where there are none."""
    block = match.main
    factors = _find_widened_factors(block)
    if factors is None:
        return []
    swapped = not factors[0].source.same_as(block.reads[0].source)
    loads = factors[::-1] if swapped else factors
    bits = 64 if str(block.iter_vars[0].var.ty.dtype) == "int64" else 32
    out = _indices(block, block.body)
    found = []
    for contraction in describe(match):
        if not contraction.broadcasts:
            continue
        indices = _indices(block, loads[contraction.rows_of])
        shared = _indices(block, loads[contraction.columns_of])
        c = _one_row_axis(contraction, indices, shared, out)
        depth_axis = _depth_axis(c)
        if not c.rows or depth_axis is None:
            continue
        step = _step(c, depth_axis, indices)
        if not c.plain and (not step or c.axes[depth_axis].extent % GROUP):
            continue
        signs = [_SIGNS[str(load.source.dtype)] for load in loads]
        found.append(
            Products(
                contraction=c,
                signs=signs[c.rows_of] + signs[c.columns_of],
                depth_axis=depth_axis,
                step=step,
                column_factor_first=(c.columns_of == 0) is not swapped,
                index_bits=bits,
            )
        )
    return found


def _find_widened_factors(block: Any) -> list[Any] | None:
    """The loads of 8-bit integers that a block multiplies as 32-bit ones, in order."""
    from tvm import tirx
    from tvm.ir import TensorLoad

    product = getattr(getattr(block.body, "value", None), "b", None)
    if not isinstance(product, tirx.Mul):
        return None
    casts = [product.a, product.b]
    if not all(isinstance(f, tirx.Cast) and str(f.ty.dtype) == "int32" for f in casts):
        return None
    loads = [cast.value for cast in casts]
    if not all(isinstance(load, TensorLoad) for load in loads):
        return None
    if not all(str(load.source.dtype) in _SIGNS for load in loads):
        return None
    return loads


def _indices(block: Any, load: Any) -> list[Index]:
    numbers = {v.var: n for n, v in enumerate(block.iter_vars)}
    return [read_index(e, numbers, frozenset()) for e in load.indices]


def _one_row_axis(
    c: Contraction, indices: list[Index], shared: list[Index], out: list[Index]
) -> Contraction:
    """The contraction with its innermost row axis only, or an axis of one step if it has none.

    Args:
        indices: indices of the row operand; `shared` are those of the column operand, which has
            no rows, and `out` those of the result.
    """
    if c.rows:
        outer = tuple(sorted((*c.outer, *c.rows[:-1]), key=lambda i: c.axes[i].out_dim or 0))
        return replace(c, rows=c.rows[-1:], outer=outer)
    for number, axis in enumerate(c.axes):
        place, out_dim = _dim_of(number, indices), _dim_of(number, out)
        if axis.reduce or axis.extent > 1 or place is None or out_dim is None:
            continue
        if _dim_of(number, shared) is not None:
            continue
        dims = (place, None) if c.rows_of == 0 else (None, place)
        used = (c.rows_of == 0, c.rows_of == 1)
        row = replace(axis, out_dim=out_dim, dims=dims, used=used)
        axes = (*c.axes[:number], row, *c.axes[number + 1 :])
        return replace(c, axes=axes, rows=(number,))
    return c


def _dim_of(axis: int, indices: list[Index]) -> int | None:
    """The dimension that an axis indexes, or None."""
    return next((d for d, index in enumerate(indices) if axis in index.steps), None)


def _depth_axis(c: Contraction) -> int | None:
    """The innermost reduction axis of several steps, if both operands have a dimension for it."""
    real = [i for i in c.reduce_axes if c.axes[i].extent > 1]
    return real[-1] if real and None not in c.axes[real[-1]].dims else None


def _step(c: Contraction, depth_axis: int, indices: list[Index]) -> int:
    """See `Products.step`."""
    last = len(indices) - 1
    if c.axes[depth_axis].dims[c.rows_of] != last or last < 1:
        return 0
    index = indices[last - 1]
    row = c.rows[0]
    return 0 if row in index.tangled else max(0, index.steps.get(row, 0))
