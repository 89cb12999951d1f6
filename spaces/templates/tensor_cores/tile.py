"""Sizes of a block's tile of a product, as costs and programs ask for them.

What is called A is the operand that gives the rows of instructions, B the one that gives columns.
Each size is that of one setting, or an array of those of many.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from spaces.targets.gpu import Gpu
from spaces.templates.products.layout import UNIT
from spaces.templates.products.product import Product

SWAP, STAGES, GROUP = "swap", "stages", "group"
"""Knobs that all have: whether A gives the result's columns, stages of shared memory, and tiles of
A whose blocks follow one another."""
KINDS = {"float16": "f16", "bfloat16": "bf16"}
"""Types of elements that are multiplied, with the names that instructions have for them."""
TERMS, ITEM = 16, 2
"""Terms of one instruction, and bytes of an element."""
LINE, LINE_BYTES, PATTERN_BYTES = 64, 128, 1024
"""Elements and bytes of a line of an operand's tile, as far as the widest swizzle reaches, and the
bytes after which that repeats."""
HELD, HELD_OF_WINDOWS = 64, 16
"""Elements that a thread has under way, at most, where threads copy one by one; fewer of windows,
since it takes registers to find each of them."""
_OPEN_REGISTERS = 16
"""Of a thread, for sizes of windows that are open."""


class Tile(Protocol):
    """The sizes that follow from a setting."""

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
    def persistent(self) -> Any:
        """Whether a multiprocessor's block goes from tile to tile."""

    @property
    def bulk_stores(self) -> Any:
        """Whether results leave as tiles, through shared memory."""

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
    return (tile.rows + tile.columns) * tile.depth * ITEM


def count_rows(product: Product, tile: Tile, operand: int) -> Any:
    """Rows, or columns, of an operand in a block's tile."""
    is_a = tile.swap == (operand == product.c.columns_of)
    return np.where(is_a, tile.rows, tile.columns)


def count_places(product: Product, tile: Tile) -> Any:
    """Registers in which a thread that copies keeps where the rows of windows are."""
    found: Any = 0
    for operand in range(2):
        if product.slides(operand) and product.in_units[operand]:
            copied = count_rows(product, tile, operand) * tile.depth * ITEM
            turns = -(-copied // (UNIT * tile.copiers))
            found = found + turns * len(product.axes_of(operand))
            found = found + _OPEN_REGISTERS * product.c.symbolic
    return found


def fits_lines(product: Product, tile: Tile) -> Any:
    """Whether rows that are dense in an operand lie in whole lines."""
    rows = [count_rows(product, tile, operand) for operand in range(2) if product.turned[operand]]
    return np.all([each % LINE == 0 for each in rows], axis=0)
