"""Guard cost: the time a kernel loses on a shape that its tiles do not divide evenly. Pure.

A remainder tile is padded and computed in full, or guarded; either takes time that full tiles would
not. A kernel cannot be timed without its guards, but it can be on shapes that its tiles divide
evenly. So the cost of the guards is the kernel's time minus its time at the rate (work per second)
of the nearest such shape. This includes any other effect of the sizes, such as caches: the shape
must be near, and a cost of some percent of the time, or below zero, is noise.
"""

from __future__ import annotations

from math import log

from tuner.search.dynamic.kernel_table import Kernels

NEAR = 2.0
"""The largest factor between the work of two near shapes."""


def guard_s(table: Kernels, number: int, place: int) -> float | None:
    """Seconds that a kernel's guards cost on a shape. Only finalists' times are used, since these
    were taken in turns.

    Returns:
        0 where the kernel's tiles divide the shape evenly. None where the padding is not known, the
        pair has no such time, or no near shape that is divided evenly has one.
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
