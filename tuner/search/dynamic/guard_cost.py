"""What it costs a kernel that a shape is no multiple of its tiles. Pure.

The rest is padded and computed, or guarded and left out; either takes time that a multiple would
not. A kernel has no time without its guard, but it has one on shapes that it divides without rest.
So a guard costs what the kernel takes beyond the pace, in work done by the second, that it has on
the nearest of these. Whatever else makes shapes of unlike size differ is in there as well, such as
caches: the shape must be near, and a cost of some percent of the time, or below zero, is noise.
"""

from __future__ import annotations

from math import log

from tuner.search.dynamic.kernel_table import Kernels

NEAR = 2.0
"""A shape is near where its work is at most this many times more, or less."""


def guard_s(table: Kernels, number: int, place: int) -> float | None:
    """Seconds that a kernel's guard costs on a shape, from times of finalists alone, which were
    taken in turns.

    Returns:
        0 where the kernel divides the shape without rest. None where that is not known, where
        there is no time, and where there is none on a near shape without rest.
    """
    kernel = table[number]
    if not (kernel.padding and kernel.work):
        return None
    if kernel.padding[place] == 0.0:
        return 0.0
    here_s, work = table.retimed_s(number, place), kernel.work[place]
    if here_s is None or work <= 0.0:
        return None
    near = [
        (abs(log(done / work)), seconds * work / done)
        for other, done in enumerate(kernel.work)
        if kernel.padding[other] == 0.0
        and work / NEAR <= done <= work * NEAR
        and (seconds := table.retimed_s(number, other)) is not None
    ]
    return here_s - min(near)[1] if near else None
