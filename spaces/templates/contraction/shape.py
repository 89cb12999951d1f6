"""A contraction as plain data: all that is known of it before it is scheduled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.task import Instance


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop of the main block.

    Attributes:
        extent: number of steps; of a symbolic axis, for the shape that is estimated.
        reduce: whether results are summed over it.
        out_dim: dimension of the result that it is the index of; None for reductions.
        dims: for each operand the dimension it alone is the index of, None where it is not, or
            only as part of an expression.
        used: for each operand whether its index depends on this axis at all.
        steps: for each operand the stride of one step in elements, None where it varies.
        symbolic: whether the extent is known only when the program runs.
        out_step: what one step adds to the index of that dimension of the result; more than one
            for groups, of which another axis has the places.
        looked_up: whether it is none of the block's, but the index that a tensor says for each row.
    """

    extent: int
    reduce: bool
    out_dim: int | None
    dims: tuple[int | None, int | None]
    used: tuple[bool, bool]
    steps: tuple[int | None, int | None] = (None, None)
    symbolic: bool = False
    out_step: int = 1
    looked_up: bool = False

    @property
    def single(self) -> bool:
        """Whether it has one step, for every shape."""
        # Of several shapes that are estimated together the extent is one of each.
        return not self.symbolic and bool(np.all(self.extent == 1))


@dataclass(frozen=True, slots=True)
class Operand:
    """One of the two factors.

    Attributes:
        shape: shape of its buffer.
        bits: size of an element.
        constant: whether it is a weight, or computed from one alone, so that it may be packed
            before the program runs.
        staged: whether a stage of the program (such as padding) writes it.
        packed_bits: of a weight that a stage makes of narrower constants, as halves or codes and
            scales, how many bits of these there are for an element; None of any other operand.
        panel_dims: the dimensions along which panels of such constants can be packed.
    """

    shape: tuple[int, ...]
    bits: int
    constant: bool
    staged: bool
    packed_bits: float | None = None
    panel_dims: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Groups:
    """The products that an instruction adds up at once (`spaces.passes.dots`).

    Attributes:
        axis: index of the reduction axis that they follow one another along.
        terms: number of products in a group.
        alike: whether factors are bytes that are signed alike, which takes a sum of each row.
    """

    axis: int
    terms: int
    alike: bool = False


@dataclass(frozen=True, slots=True)
class Contraction:
    """A sum of products, and the roles its axes play.

    Attributes:
        axes: loops of the main block, in order.
        operands: the two factors, in the order the block reads them.
        column: index of the axis along which vectors lie.
        rows: axes fused into the rows of a register tile, outer to inner; may be empty.
        outer: the other spatial axes with more than one step.
        columns_of: index of the operand that is read in vectors and may be packed into panels.
        plain: whether every index of every buffer is one axis alone, so that odd sizes can be
            padded.
        out_dims: number of dimensions of the result.
        out_bits: size of an element of the result.
        epilogue: whether stages follow the contraction.
        epilogue_keeps_shape: whether the last of them writes each element where it was, so that
            rows can be fused there too.
        product: whether the program is first brought into the form of a matrix product, see
            `spaces.templates.contraction.product_form`; all of the above is said of that form.
        groups: the products of a step where an instruction adds up several; None where a step is
            one product.
    """

    axes: tuple[Axis, ...]
    operands: tuple[Operand, Operand]
    column: int
    rows: tuple[int, ...]
    outer: tuple[int, ...]
    columns_of: int
    plain: bool
    out_dims: int
    out_bits: int
    epilogue: bool
    epilogue_keeps_shape: bool
    product: bool = False
    groups: Groups | None = None

    @property
    def symbolic(self) -> bool:
        """Whether any extent is known only when the program runs."""
        return any(axis.symbolic for axis in self.axes)

    @property
    def exact_but_rows(self) -> bool:
        """Whether symbolic axes are outer ones, of which no tile takes a part, or a row axis by
        itself, of which a remainder can be split off: then nothing needs to be padded."""
        allowed = {*self.outer, *(self.rows if len(self.rows) == 1 else ())}
        return all(i in allowed for i, axis in enumerate(self.axes) if axis.symbolic)

    @property
    def ragged_rows(self) -> bool:
        """Whether the rows are one axis whose extent is known only when the program runs."""
        return len(self.rows) == 1 and self.axes[self.rows[0]].symbolic

    def of_extents(self, extents: Sequence[Any]) -> Contraction:
        """The same program, its axes in the same roles, for another shape.

        Extents may be arrays, of many shapes at once; then so are the sizes computed from them.
        """
        axes = (replace(a, extent=n) for a, n in zip(self.axes, extents, strict=True))
        return replace(self, axes=tuple(axes))

    @property
    def row_extent(self) -> int:
        """Number of rows, over all row axes."""
        return prod(self.axes[i].extent for i in self.rows)

    @property
    def column_extent(self) -> int:
        """Number of columns."""
        return self.axes[self.column].extent

    @property
    def outer_extent(self) -> int:
        """The number of times that the tiled rectangle of rows and columns is computed."""
        return prod(self.axes[i].extent for i in self.outer)

    @property
    def reduce_axes(self) -> tuple[int, ...]:
        """The reduction axes, outer to inner."""
        return tuple(i for i, axis in enumerate(self.axes) if axis.reduce)

    @property
    def depth(self) -> int:
        """Number of products in one sum."""
        return prod(self.axes[i].extent for i in self.reduce_axes)

    @property
    def group(self) -> int:
        """Number of products in one step of a sum."""
        return 1 if self.groups is None else self.groups.terms

    def count_steps(self, axis: int) -> Any:
        """Steps along a reduction axis, the last one padded where groups do not divide it."""
        grouped = self.groups is not None and axis == self.groups.axis
        return -(-self.axes[axis].extent // (self.group if grouped else 1))

    @property
    def steps(self) -> Any:
        """Number of steps in one sum, of `group` products each."""
        return prod(self.count_steps(i) for i in self.reduce_axes)

    def has_groups(self, operand: int) -> bool:
        """Whether the factors of a step lie next to one another in an operand as it is."""
        return self.groups is None or self.axes[self.groups.axis].steps[operand] == 1

    @property
    def rows_of(self) -> int:
        """Index of the other operand, whose elements are broadcast if `broadcasts`."""
        return 1 - self.columns_of

    @property
    def broadcasts(self) -> bool:
        """Whether the row operand is read an element at a time; else both are read in vectors."""
        return not self.axes[self.column].used[self.rows_of]

    @property
    def columns_follow(self) -> bool:
        """Whether the column operand has columns next to one another, so that vectors of it can be
        read in place."""
        return self.axes[self.column].steps[self.columns_of] in (1, 2)

    @property
    def columns_pack(self) -> bool:
        """Whether panels of the column operand can be packed."""
        return self.broadcasts and self.axes[self.column].dims[self.columns_of] is not None

    @property
    def packed_bits(self) -> float | None:
        """Bits of an element of the column operand where it is a packed weight."""
        return self.operands[self.columns_of].packed_bits

    @property
    def rows_pack(self) -> bool:
        """Whether strips of the row operand can be packed."""
        strips = bool(self.rows) and self.axes[self.rows[-1]].dims[self.rows_of] is not None
        return self.broadcasts and strips

    @property
    def stages_inside(self) -> tuple[int, ...]:
        """Operands whose stage may be done piece by piece, in the chunk that reads the piece."""
        pieces = (self.rows_of,) if self.columns_pack else (self.rows_of, self.columns_of)
        staged = [o for o in pieces if self.operands[o].staged or self._padded_rows(o)]
        return tuple(o for o in staged if not self.operands[o].constant)

    def _padded_rows(self, operand: int) -> bool:
        """Whether an operand is copied for the sake of rows that are padded for some shape."""
        inner = (*self.rows, *self.reduce_axes)
        return operand == self.rows_of and any(self.axes[i].symbolic for i in inner)

    @property
    def column_is_last(self) -> bool:
        """Whether columns lie next to one another in the result."""
        return self.axes[self.column].out_dim == self.out_dims - 1


def over_shapes(
    c: Contraction, extents: Mapping[Instance, Sequence[int]], knobs: Mapping[str, int]
) -> tuple[Contraction, dict[str, npt.NDArray[np.int64]]]:
    """A contraction over many shapes at once, and one setting for each of them."""
    sizes = np.array(list(extents.values()), dtype=np.int64)
    columns = {name: np.full(len(sizes), value) for name, value in knobs.items()}
    return c.of_extents(list(sizes.T)), columns
