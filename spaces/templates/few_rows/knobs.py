"""Knobs of a product with few rows: their values, their limits, and the sizes they give.

In a step each thread loads a patch of the weights, some terms of some columns, and multiplies it
by all rows of its block's tile. After the last step threads along the terms add up what they have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.gpu import STATIC_SHARED_BYTES, WARP, Gpu, register_limit
from spaces.templates.few_rows.roles import Roles
from spaces.templates.products.product import Product
from spaces.templates.products.totals import SPLIT_COUNTS, SPLITS

ROWS, VECTOR, COLUMNS, UNROLL = "rows", "vector", "columns", "unroll"
TERM_THREADS, COLUMN_THREADS = "term_threads", "column_threads"

_MOST_VALUES = 16
"""Of rows in a tile."""
_MOST_THREADS, _MOST_REGISTERS = 512, 168
_OTHER_REGISTERS = 40
"""Of a thread, besides sums and what it has loaded: addresses and counts."""
_MOST_PRODUCTS = 512
"""Of a thread's step, which are written one by one."""
_WORD, _SUM = 4, 4
"""Bytes of a register, and of a sum."""


@dataclass(frozen=True, slots=True)
class FewTile:
    """The sizes that follow from a setting, or from many as arrays.

    Attributes:
        rows: of a block's tile.
        vector: elements of a load of weights.
        term_threads: threads along the terms; `column_threads` along the columns.
        columns: of a thread, or vectors of them where the weights' columns are dense.
        unroll: loads along the terms that a thread has in flight for each of these.
        splits: blocks that share the terms of a sum.
    """

    roles: Roles
    rows: Any
    vector: Any
    term_threads: Any
    column_threads: Any
    columns: Any
    unroll: Any
    splits: Any

    @property
    def groups(self) -> Any:
        """Runs of terms of a thread's step; `each` the terms of one."""
        return 1 if self.roles.turned else self.unroll

    @property
    def each(self) -> Any:
        return self.unroll if self.roles.turned else self.vector

    @property
    def width(self) -> Any:
        """Columns of a load."""
        return self.vector if self.roles.turned else 1

    @property
    def few_vector(self) -> Any:
        """Elements of a load of the few rows."""
        return _plain(np.gcd(self.each, self.roles.few_width))

    @property
    def threads(self) -> Any:
        return self.term_threads * self.column_threads

    @property
    def block_columns(self) -> Any:
        return self.column_threads * self.columns * self.width

    @property
    def step_terms(self) -> Any:
        """Terms of a block's step."""
        return self.groups * self.each * self.term_threads

    @property
    def sums(self) -> Any:
        """Sums of a thread."""
        return self.rows * self.columns * self.width

    @property
    def loads(self) -> Any:
        """Loads of weights that a thread has in flight."""
        return self.unroll * self.columns

    @property
    def products(self) -> Any:
        """Multiply-adds of a thread's step."""
        return self.sums * self.groups * self.each

    @property
    def lanes(self) -> Any:
        """Threads along the terms that are in one warp: they add up by shuffles."""
        beside = self.column_threads if self.roles.turned else 1
        return _plain(np.minimum(self.term_threads, np.maximum(WARP // beside, 1)))

    @property
    def parts(self) -> Any:
        """Sums of each result that meet in shared memory."""
        return self.term_threads // self.lanes

    @property
    def shared_bytes(self) -> Any:
        return self.parts * self.rows * self.block_columns * _SUM

    @property
    def registers(self) -> Any:
        """Registers of a thread: an estimate."""
        roles = self.roles
        weights = -(-self.loads * self.vector * roles.item // _WORD)
        few = -(-self.rows * self.each * roles.few_item // _WORD)
        return self.sums + weights + few + self.columns * self.width + _OTHER_REGISTERS


def _plain(size: Any) -> Any:
    """A size as programs take it: an integer of Python's, where it is that of one setting."""
    return int(size) if np.ndim(size) == 0 else size


def choices_of(roles: Roles) -> dict[str, tuple[int, ...]]:
    """Values of each knob."""
    rows = [1]
    while rows[-1] < min(roles.most_rows or _MOST_VALUES, _MOST_VALUES):
        rows.append(2 * rows[-1])
    return {
        ROWS: tuple(rows),
        VECTOR: tuple(v for v in (1, 2, 4, 8, 16, 32) if roles.width % v == 0),
        TERM_THREADS: (1, 4, 8, 16, 32, 64, 128, 256),
        COLUMN_THREADS: (1, 2, 4, 8, 16, 32, 64, 128),
        COLUMNS: (1, 2, 4),
        UNROLL: (1, 2, 4, 8),
        SPLITS: SPLIT_COUNTS,
    }


def tile_of(roles: Roles, knobs: Mapping[str, Any]) -> FewTile:
    """The sizes of a setting, or of many."""
    names = (ROWS, VECTOR, TERM_THREADS, COLUMN_THREADS, COLUMNS, UNROLL, SPLITS)
    return FewTile(roles, *(knobs[name] for name in names))


def feasible(product: Product, gpu: Gpu, tile: FewTile) -> npt.NDArray[np.bool_]:
    """Whether each setting keeps to the limits of the hardware, whatever the shape."""
    most = np.minimum(register_limit(gpu, tile.threads), _MOST_REGISTERS)
    good = tile.registers <= most
    good &= (tile.threads >= WARP) & (tile.threads <= _MOST_THREADS)
    good &= tile.shared_bytes <= STATIC_SHARED_BYTES
    good &= tile.products <= _MOST_PRODUCTS
    return np.asarray(good, dtype=np.bool_)
