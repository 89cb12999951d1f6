"""Where elements of tiles lie in shared memory, and who copies and reads them.

All sizes are powers of two. Each function takes numbers or expressions. No two of the threads that
the memory serves at once meet in a bank: neither those that copy nor those that read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spaces.targets.gpu import WARP
from spaces.templates.products.product import Product
from spaces.templates.thread_products.knobs import SECTOR, VECTOR, ThreadTile, width_of

_UNITS = 8
"""Vectors that lie next to one another in all banks."""
_SECTORS = 4
"""Those in all banks."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The tile of one operand, of some rows by some terms.

    Where rows are dense in memory, those of a term lie next to one another. Else terms of a row do;
    then rows have numbers, called slots, by which neighbouring threads have neighbouring ones.

    Attributes:
        turned: whether rows are dense.
        lanes: threads of a warp along the rows.
        vectors: of rows that a thread has.
        width: elements of a copy.
    """

    turned: bool
    rows: int
    depth: int
    lanes: int
    vectors: int
    width: int

    @property
    def copies(self) -> int:
        """Copies of all threads."""
        return self.rows * self.depth // self.width

    def copy(self, number: Any) -> tuple[Any, Any]:
        """The slot, or row, and the term where a copy begins.

        Of a number whose bits are those of two others it is the sum of theirs. A warp copies what
        lies next to one another.
        """
        if not self.turned and self.width < VECTOR:
            return self._copy_sector(number)
        dense = min((self.rows if self.turned else self.depth) // self.width, WARP)
        if not self.turned:
            return number // dense, number % dense * self.width
        line = number // dense
        return (number % dense + line // self.depth * dense) * self.width, line % self.depth

    def _copy_sector(self, number: Any) -> tuple[Any, Any]:
        """See `copy`, of terms that are copied a few at a time: a warp takes a sector of each of
        some rows, and a thread several terms of a row, whose addresses differ by what an
        instruction adds. The swizzle puts sectors of every other line of rows into other banks.
        """
        along, line = SECTOR // self.width, _UNITS * VECTOR // self.depth
        part, row, late = number % along, number // along % self.rows, number // along // self.rows
        own, others = row % line, row // line % (_SECTORS // line)
        between, far = row // _SECTORS % 2, row // (2 * _SECTORS)
        slot = own + (between + 2 * others) * line + far * 2 * _SECTORS
        return slot, part * self.width + late * SECTOR

    def row(self, slot: Any) -> Any:
        """The row of a slot."""
        if self.turned:
            return slot
        group = VECTOR * self.lanes
        return slot // group * group + slot % self.lanes * VECTOR + slot % group // self.lanes

    def offset(self, slot: Any, term: Any) -> Any:
        """Where an element lies: of terms, vectors of neighbouring rows are in other banks."""
        if self.turned:
            return term * self.rows + slot
        unit = term // VECTOR ^ self._turn(slot)
        return slot * self.depth + unit * VECTOR + term % VECTOR

    def read(self, begin: Any, first: Any, own: int, term: int) -> Any:
        """Where a thread reads: `offset`, written so that it is computed once for all terms, each
        of which exchanges bits of it.

        Args:
            begin: of the tile, in vectors, a multiple of those of a row.
            first: the slot of the thread's first row; `own` is how far another one is behind it.
                They have no bit in common.
        """
        if self.turned:
            return begin * VECTOR + self.offset(first + own, term)
        units = self.depth // VECTOR
        unit = begin + first * units + self._turn(first) ^ term // VECTOR ^ self._turn(own)
        return unit * VECTOR + own * self.depth + term % VECTOR

    def _turn(self, slot: Any) -> Any:
        """By what the vectors of a slot's terms are exchanged."""
        units = self.depth // VECTOR
        return slot // (_UNITS // units) % units

    def first_row(self, warp: Any, lane: Any) -> Any:
        """The first row of a thread, by its warp along this side and its place in it."""
        return warp * self.vectors * VECTOR * self.lanes + lane * VECTOR

    def first_slot(self, warp: Any, lane: Any) -> Any:
        """The slot of a thread's first row."""
        if self.turned:
            return self.first_row(warp, lane)
        return warp * self.vectors * VECTOR * self.lanes + lane

    def own_row(self, number: Any) -> Any:
        """How far a row of a thread is behind its first."""
        return number // VECTOR * VECTOR * self.lanes + number % VECTOR

    def own_slot(self, number: Any) -> Any:
        """How far the slot of a thread's row is behind the first."""
        return self.own_row(number) if self.turned else number * self.lanes


def place_lane(lane: Any, row_lanes: int) -> tuple[Any, Any]:
    """The place of a thread within a warp: along the rows, and along the columns.

    Of the side with few places threads that differ in the lowest bit alone have the same vector on
    the other one, so that the memory serves half a warp at once (as CUTLASS has it, see
    "Efficient GEMM in CUDA": RowMajorInterleaved).
    """
    few = lane // (WARP // 2) * 2 + lane % 2
    many = lane // 2 % (WARP // 4)
    return (few, many) if row_lanes == 4 else (many, few)


def tile_of_operand(product: Product, tile: ThreadTile, operand: int) -> Tile:
    """The tile of an operand of a product, of one setting."""
    if operand == product.c.rows_of:
        rows, lanes, vectors = tile.rows, tile.row_lanes, tile.row_vectors
    else:
        rows, lanes, vectors = tile.columns, tile.column_lanes, tile.column_vectors
    width = width_of(product, operand)
    return Tile(product.turned[operand], rows, tile.depth, lanes, vectors, width)
