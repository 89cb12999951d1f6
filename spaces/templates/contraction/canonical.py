"""Settings of a register-tiled product that give one program, reduced to one of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from spaces.templates.base import Columns
from spaces.templates.contraction import register_tile as k
from spaces.templates.contraction.shape import Contraction


def canonical(c: Contraction, t: k.Tiling, columns: Columns) -> Columns:
    """For each setting the one that stands for all which give its program.

    A block that is the whole of one tile is a block of one. Where a block has one tile along
    columns, or one along all else, both orders of its loops are the same. A stage can be inside
    only where there is one: an operand that is packed has another.
    """
    found = dict(columns)
    if not (c.axes[c.column].symbolic or any(c.axes[i].symbolic for i in c.rows)):
        row_block = np.where(t.row_tiles == 1, 1, columns[k.ROW_BLOCK])
        column_block = np.where(t.column_tiles == 1, 1, columns[k.COLUMN_BLOCK])
        first = np.where(column_block == 1, 1, columns[k.COLUMNS_FIRST])
        first = np.where((row_block == 1) & (columns[k.OUTER_BLOCK] == 1), 0, first)
        # The loop over tiles inside carries the predicate of rows that are split off.
        kept = k.leaves_ragged(columns) == 1
        found[k.COLUMNS_FIRST] = np.where(kept, columns[k.COLUMNS_FIRST], first)
        found |= {k.ROW_BLOCK: row_block, k.COLUMN_BLOCK: column_block}
    stays: Any = 0
    for operand in c.stages_inside:
        pack = k.PACK_ROWS if operand == c.rows_of else k.PACK_COLUMNS
        stays = stays | (columns[pack] == 0 if pack in columns else 0)
    found[k.STAGE_INSIDE] = columns[k.STAGE_INSIDE] * stays
    return found


def count_unrolled(c: Contraction, wanted: int) -> tuple[int, ...]:
    """The steps that are unrolled of each reduction loop, at most the wanted number together.

    The loops are those with more than one step, the innermost last; 1 where a loop stays a loop.
    """
    extents = [c.count_steps(i) for i in c.reduce_axes if not c.axes[i].single]
    if c.plain and len(extents) == 1:
        return (wanted,)  # the extent is padded to a multiple
    steps, left = [], wanted
    for extent in reversed(extents):
        step = max(d for d in range(1, min(left, extent) + 1) if extent % d == 0)
        steps.append(step)
        left = left // extent if step == extent else 1
    return tuple(reversed(steps))


def distinct_unrolls(c: Contraction, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """The wanted numbers of unrolled steps without those that give what a lower one gives."""
    by_steps: dict[tuple[int, ...], int] = {}
    for number in wanted:
        by_steps.setdefault(count_unrolled(c, number), number)
    return tuple(by_steps.values())
