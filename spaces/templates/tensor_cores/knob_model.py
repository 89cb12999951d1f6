"""Knobs of a product on Hopper's tensor cores: their values, their limits, and the sizes they give.

A warpgroup has tiles of both operands copied into shared memory, several stages ahead; others
multiply them (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"). A is the operand that
gives the 64 rows of each instruction, B the one that gives its columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.gpu import Gpu
from spaces.templates.base import Columns
from spaces.templates.tensor_cores.product import Product

SWAP, CONSUMERS, PARTS, COLUMNS, DEPTH = "swap", "consumers", "parts", "columns", "depth"
STAGES, GROUP, PERSISTENT, STAGED = "stages", "group", "persistent", "staged"

WARPGROUP, ROWS, TERMS = 128, 64, 16
"""Threads of a warpgroup; rows and terms of one instruction."""
LINE = 64
"""Elements of a line of an operand's tile: 128 bytes, as far as the widest swizzle reaches."""
LINE_BYTES, PATTERN_BYTES = 128, 1024
"""Bytes after which that swizzle repeats: eight lines."""
ITEM = 2
HELD = 64
"""Elements that a thread has under way, at most, where threads copy."""
OTHER_REGISTERS = 40
"""Of a consumer's thread, besides its sums."""
_REGISTER_UNIT = 8
_BARRIER_BYTES = 16


@dataclass(frozen=True, slots=True)
class Tile:
    """The sizes that follow from knobs; of one setting, or of many as arrays.

    Attributes:
        swap: whether A is the operand that gives the result's columns.
        consumers: warpgroups that multiply; `parts` the instructions that each has for its rows.
        rows: rows of A in a block's tile; `columns` those of B.
        depth: terms of a stage.
        group: tiles of A whose blocks follow one another.
        persistent: whether a multiprocessor's block goes from tile to tile.
        staged: whether results go through shared memory.
    """

    swap: Any
    consumers: Any
    parts: Any
    columns: Any
    depth: Any
    stages: Any
    group: Any
    persistent: Any
    staged: Any

    @property
    def rows(self) -> Any:
        """Rows of A in a block's tile."""
        return ROWS * self.consumers * self.parts

    @property
    def sums(self) -> Any:
        """Sums of a thread."""
        return self.parts * self.columns // 2

    @property
    def threads(self) -> Any:
        """Threads of a block."""
        return WARPGROUP * (1 + self.consumers)

    @property
    def stage_bytes(self) -> Any:
        """Shared memory of both operands' tiles of one stage."""
        return (self.rows + self.columns) * self.depth * ITEM

    def shared_bytes(self, out_bits: int) -> Any:
        """Shared memory of a block."""
        result = self.staged * self.rows * self.columns * out_bits // 8
        return self.stages * (self.stage_bytes + _BARRIER_BYTES) + result + PATTERN_BYTES


def choices_of(product: Product) -> dict[str, tuple[int, ...]]:
    """Values of each knob."""
    columns: tuple[int, ...] = (8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256)
    if all(product.turned):
        columns = tuple(number for number in columns if _fills_lines(number))
    return {
        SWAP: (0, 1),
        CONSUMERS: (1, 2, 3),
        PARTS: (1, 2),
        COLUMNS: columns,
        DEPTH: (64, 128),
        STAGES: (3, 4, 5, 6, 8),
        GROUP: (1, 2, 4, 8, 16),
        PERSISTENT: (0, 1),
        STAGED: (0,) if product.out_dense is None else (0, 1),
    }


def tile_of(knobs: Mapping[str, Any]) -> Tile:
    """The sizes of a block, from its knobs."""
    names = (SWAP, CONSUMERS, PARTS, COLUMNS, DEPTH, STAGES, GROUP, PERSISTENT, STAGED)
    return Tile(*(knobs[name] for name in names))


def launch_registers(gpu: Gpu, threads: Any) -> Any:
    """Registers of each thread when a block starts, before warpgroups give theirs away: what the
    compiler has for each."""
    most = gpu.registers // threads
    return np.minimum(gpu.thread_registers, most - most % _REGISTER_UNIT)


def feasible(product: Product, gpu: Gpu, columns: Columns) -> npt.NDArray[np.bool_]:
    """Whether each setting keeps to the limits of the hardware, whatever the shape."""
    tile = tile_of(columns)
    good = tile.sums + OTHER_REGISTERS <= launch_registers(gpu, tile.threads)
    good &= tile.shared_bytes(product.out_bits) <= gpu.dynamic_shared_bytes
    swapped, straight = (product.turned[o] for o in (product.c.rows_of, product.c.columns_of))
    good &= ~np.where(tile.swap, swapped, straight) | _fills_lines(tile.columns)
    return np.asarray(good, dtype=np.bool_)


def _fills_lines(columns: Any) -> Any:
    """Whether columns that are dense in B lie in whole lines."""
    return columns % LINE == 0
