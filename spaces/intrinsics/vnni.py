"""Products of 8-bit integers with VNNI (of AVX-512, or AVX-VNNI), as tensor intrinsics of our own.

`vpdpbusd` adds four products of an unsigned and a signed byte to each 32-bit lane, and does not
saturate. For two operands of the same signedness, the top bit of the one that is read in vectors is
flipped, which shifts its numbers by 128; the excess of a result is then 128 times the sum of the
other operand's row. A whole sum is one intrinsic, so the correction takes the sum of each row for
each register tile, and hardly any work in its innermost step. Results are those of the plain
program, bit for bit: both are arithmetic modulo 2^32.

An intrinsic's name tells all of its sizes, so an intrinsic that a trace names can be made from its
name alone, see `spaces.intrinsics.vnni_registry`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

GROUP = 4
"""Products that one lane sums up at once."""

_PREFIX = "tuner.vnni."
_NAME = re.compile(r"tuner\.vnni\.[0-9a-z_]+")
_DOT = re.compile(
    r"dot_([us])([us])_r(\d+)v(\d+)l(\d+)_k(\d+)_(strip|step(\d+))_u(\d+)"
    r"_a([rc])f([rc])_i(32|64)"
)
_MIX = re.compile(r"mix_(u?int8)_l(\d+)_i(32|64)")
_ORDER = "rc"


@dataclass(frozen=True, slots=True)
class Dot:
    """A register tile: rows x (vectors * lanes) sums of `depth` products each.

    Attributes:
        signs: `s` for int8 and `u` for uint8, first of the row operand, then of the column operand.
        depth: products of each sum, a multiple of `GROUP * unroll`.
        step: distance between rows of a row operand in the layout (rows, depth), in rows of its
            tensor; 0 for the layout (depth / 4, rows, 4), with 4, 8 or 16 rows.
        unroll: groups in one round of the loop.
        columns_first: whether the program has its axis of columns before that of rows.
        column_factor_first: whether it multiplies columns by rows instead of rows by columns.
        index_bits: bits of the program's loop variables.
    """

    signs: str
    rows: int
    vectors: int
    lanes: int
    depth: int
    step: int
    unroll: int
    columns_first: bool = False
    column_factor_first: bool = False
    index_bits: int = 32

    @property
    def name(self) -> str:
        """The name that the intrinsic is registered under."""
        place = f"step{self.step}" if self.step else "strip"
        order = f"a{_ORDER[self.columns_first]}f{_ORDER[self.column_factor_first]}"
        return (
            f"{_PREFIX}dot_{self.signs}_r{self.rows}v{self.vectors}l{self.lanes}_k{self.depth}"
            f"_{place}_u{self.unroll}_{order}_i{self.index_bits}"
        )

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.vectors * self.lanes

    @property
    def groups(self) -> int:
        """The number of groups of four products in a sum."""
        return self.depth // GROUP


@dataclass(frozen=True, slots=True)
class Mix:
    """A copy of (4, lanes) bytes to (lanes, 4), the layout of packed groups."""

    dtype: str
    lanes: int
    index_bits: int

    @property
    def name(self) -> str:
        """The name that the intrinsic is registered under."""
        return f"{_PREFIX}mix_{self.dtype}_l{self.lanes}_i{self.index_bits}"


def parse(name: str) -> Dot | Mix | None:
    """The intrinsic of a name; None where the name is not one of ours."""
    short = name.removeprefix(_PREFIX)
    if dot := _DOT.fullmatch(short):
        row, column, rows, vectors, lanes, depth, _, step, unroll, *order, bits = dot.groups()
        return Dot(
            signs=row + column,
            rows=int(rows),
            vectors=int(vectors),
            lanes=int(lanes),
            depth=int(depth),
            step=int(step or 0),
            unroll=int(unroll),
            columns_first=order[0] == _ORDER[True],
            column_factor_first=order[1] == _ORDER[True],
            index_bits=int(bits),
        )
    if mix := _MIX.fullmatch(short):
        return Mix(mix.group(1), int(mix.group(2)), int(mix.group(3)))
    return None


def find_intrinsics(text: str) -> list[Dot | Mix]:
    """All of our intrinsics that a text names, such as a trace or a database, each once."""
    if _PREFIX not in text:
        return []
    found = (parse(name) for name in sorted(set(_NAME.findall(text))))
    return [intrinsic for intrinsic in found if intrinsic is not None]
