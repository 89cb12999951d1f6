"""A space of bad schedules of any program, to be added to what is known: `--space bad_space.py`."""

from __future__ import annotations

from typing import Any

from tuner import space


@space.template
def scattered(sch: Any) -> None:
    """The loops of each block in random tiles, the long strides innermost, on one core."""
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        loops = sch.get_loops(block)[:2]
        halves = [sch.split(loop, sch.sample_perfect_tile(loop, 2, 64)) for loop in loops]
        sch.reorder(*(far for far, _ in halves), *(near for _, near in reversed(halves)))


SPACE = space.union(scattered, space.ours())
