"""Sizes of a block's tile of a product, as costs and programs ask for them.

What is called A is the operand that gives the rows of instructions, B the one that gives columns.
Each size is that of one setting, or an array of those of many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from spaces.targets.gpu import Gpu
from spaces.templates.products.layout import UNIT
from spaces.templates.products.product import Product
from spaces.templates.products.runs import count_run_bytes

SWAP, STAGES, GROUP = "swap", "stages", "group"
"""Knobs that all have, besides that of `spaces.templates.products.totals`: whether A gives the
result's columns, stages of shared memory, and tiles of A whose blocks follow one another."""
LINE_BYTES, PATTERN_BYTES = 128, 1024
"""Bytes of a line of an operand's tile, as far as the widest swizzle reaches, and the bytes after
which that repeats."""
WORD_BYTES = 4
"""Of the least copy that threads have under way."""
HELD, HELD_OF_WINDOWS = 64, 16
"""Elements that a thread has under way, at most, where threads copy one by one; fewer of windows,
since it takes registers to find each of them."""
_OPEN_REGISTERS = 16
"""Of a thread, for sizes of windows that are open."""
_INSTRUCTION_BYTES, _LEAST_ROWS = 32, 64
_LEAST_WIDTH, _OF_SCALES, _MOST_HELD = 8, 2, 48
"""Elements of a vector that is unpacked, registers for what they have in common, and registers for
all vectors that a thread has loaded."""


@dataclass(frozen=True, slots=True)
class Element:
    """What tensor cores multiply. An instruction takes 32 bytes of terms, whatever their type (PTX
    ISA, "mma", "wgmma": shapes of single, half precision and integer types).

    Attributes:
        names: the types, with the names that instructions have for them.
        bytes: of an element.
        sums: the type of registers for sums; those of whole numbers have signs all the same.
        products: instructions for each product.
        apart: terms after which sums leave the tensor cores and are added in float32; 0 is never.
    """

    names: Mapping[str, str]
    bytes: int
    sums: str = "float32"
    products: int = 1
    apart: int = 0

    @property
    def terms(self) -> int:
        """Terms of one instruction."""
        return _INSTRUCTION_BYTES // self.bytes

    @property
    def line(self) -> int:
        """Elements of a line."""
        return LINE_BYTES // self.bytes

    @property
    def least_rows(self) -> int:
        """Rows that lie next to one another in a line, at least."""
        return min(self.line, _LEAST_ROWS)


HALVES = Element({"float16": "f16", "bfloat16": "bf16"}, 2)
BYTES = Element({"int8": "s8", "uint8": "u8"}, 1, sums="uint32")
SINGLES = Element({"float32": "tf32"}, 4, products=3)
TF32 = Element(SINGLES.names, 4)
_BYTE_FLOATS = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
WIDENED = Element(_BYTE_FLOATS, 1, products=2)
"""Floats of 8 bits that are made halves before they are multiplied."""
ROUGH_OF_WARPS, ROUGH_OF_WARPGROUPS = (
    Element(_BYTE_FLOATS, 1, apart=apart) for apart in (_INSTRUCTION_BYTES, 4 * _INSTRUCTION_BYTES)
)
"""The same that tensor cores multiply as they are, see
`spaces.templates.tensor_cores.elements.byte_float_fragments`."""
_ALL = (HALVES, BYTES, SINGLES, WIDENED)
_ELEMENTS = {kind: element for element in _ALL for kind in element.names}


def element_of(kind: str) -> Element:
    """The element of a type, of which products are as exact as its own; of floats of 8 bits, of
    which there are several, one.

    Raises:
        KeyError: tensor cores do not multiply it.
    """
    return _ELEMENTS[kind]


class Tile(Protocol):
    """The sizes that follow from a setting."""

    @property
    def element(self) -> Element: ...

    @property
    def swap(self) -> Any: ...

    @property
    def rows(self) -> Any:
        """Rows of A."""

    @property
    def columns(self) -> Any:
        """Rows of B, which are columns of the instructions."""

    @property
    def depth(self) -> Any:
        """Terms of a stage."""

    @property
    def stages(self) -> Any: ...

    @property
    def group(self) -> Any: ...

    @property
    def splits(self) -> Any: ...

    @property
    def run_blocks(self) -> Any:
        """Blocks that share the runs of a tile, see `spaces.templates.products.runs`."""

    @property
    def persistent(self) -> Any:
        """Whether a multiprocessor's block goes from tile to tile."""

    @property
    def bulk_stores(self) -> Any:
        """Whether results leave as tiles, through shared memory."""

    @property
    def a_blocks(self) -> Any:
        """Blocks of a cluster along the tiles of A, which share those of B; `b_blocks` are those
        along the tiles of B."""

    @property
    def b_blocks(self) -> Any: ...

    @property
    def sums(self) -> Any:
        """Sums of a thread."""

    @property
    def threads(self) -> Any:
        """Threads of a block; `copiers` are those that copy operands."""

    @property
    def copiers(self) -> Any: ...

    @property
    def apart(self) -> Any:
        """Parts of a block that wait for its stages each by themselves."""

    def block_bytes(self, out_bits: int) -> Any:
        """Shared memory of a block, whose results have elements of so many bits."""

    def registers(self, gpu: Gpu) -> Any:
        """Registers that the compiler gives each thread."""

    def multiplying(self, gpu: Gpu, rate: float) -> Any:
        """Cycles in which tensor cores multiply a stage, at a share of their rate."""


def count_stage_bytes(tile: Tile) -> Any:
    """Shared memory of both operands' tiles of one stage."""
    return (tile.rows + tile.columns) * tile.depth * tile.element.bytes


def count_fetched_bytes(product: Product, tile: Tile) -> Any:
    """What of both tiles a block fetches by itself, where blocks of a cluster share the rest."""
    found: Any = 0
    for operand in range(2):
        is_a = tile.swap == (operand == product.c.columns_of)
        lines = np.where(is_a, tile.rows / tile.b_blocks, tile.columns / tile.a_blocks)
        found = found + lines * tile.depth * product.item_bytes(operand)
    return found


def count_block_bytes(product: Product, tile: Tile) -> Any:
    """Shared memory of a block of a product."""
    runs = count_run_bytes(product, count_rows(product, tile, product.c.rows_of))
    return tile.block_bytes(product.out_bits) + runs


def count_rows(product: Product, tile: Tile, operand: int) -> Any:
    """Rows, or columns, of an operand in a block's tile."""
    is_a = tile.swap == (operand == product.c.columns_of)
    return np.where(is_a, tile.rows, tile.columns)


def count_places(product: Product, tile: Tile) -> Any:
    """Registers in which a thread that copies keeps where the rows of windows are."""
    found: Any = 0
    for operand in range(2):
        if product.slides(operand) and product.in_units[operand]:
            copied = count_rows(product, tile, operand) * tile.depth * tile.element.bytes
            turns = -(-copied // (UNIT * tile.copiers))
            found = found + turns * len(product.axes_of(operand))
            found = found + _OPEN_REGISTERS * product.c.symbolic
    return found


def choose_width(widest: int, elements: Any, along: Any, threads: Any) -> Any:
    """Elements of a packed operand that a thread unpacks at once: as many as keep all threads busy,
    but those of a unit of shared memory at least.

    Args:
        widest: of the operand's vectors.
        elements: of a tile; `along` those of a line of it.
    """
    found: Any = min(widest, _LEAST_WIDTH)
    for width in (2 * _LEAST_WIDTH, 4 * _LEAST_WIDTH):
        if width <= widest:
            found = np.where(elements // width >= threads, width, found)
    return np.gcd(found, along)


def choose_held(turns: Any, vector_bytes: Any) -> Any:
    """Vectors of a packed operand that a thread has loaded at once, of those that it unpacks.

    Args:
        vector_bytes: in memory.
    """
    return np.clip(_MOST_HELD // _count_registers(vector_bytes), 1, turns)


def _count_registers(vector_bytes: Any) -> Any:
    """Of a vector that is loaded."""
    return -(-vector_bytes // WORD_BYTES) + _OF_SCALES


def count_unpacked(product: Product, tile: Tile, operand: int) -> tuple[Any, Any]:
    """How often a thread loads vectors of a packed operand for a stage, and in how many registers
    it has them."""
    packed = product.packed[operand]
    assert packed is not None
    rows = count_rows(product, tile, operand)
    along = rows if product.turned[operand] else tile.depth
    width = choose_width(product.packed_widths[operand], rows * tile.depth, along, tile.copiers)
    turns = -(-rows * tile.depth // (width * tile.copiers))
    held = choose_held(turns, width * packed.bits / 8)
    return -(-turns // held), held * _count_registers(width * packed.bits / 8)


def count_held(product: Product, tile: Tile) -> Any:
    """Registers of a thread for codes that it has loaded, and for their scales."""
    packed = [operand for operand in range(2) if product.packed[operand] is not None]
    return sum((count_unpacked(product, tile, operand)[1] for operand in packed), start=0)


def fits_lines(product: Product, tile: Tile) -> Any:
    """Whether rows that are dense in an operand lie in whole lines."""
    rows = [count_rows(product, tile, operand) for operand in range(2) if product.turned[operand]]
    return np.all([each % tile.element.least_rows == 0 for each in rows], axis=0)
