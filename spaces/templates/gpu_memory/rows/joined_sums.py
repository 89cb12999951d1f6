"""Sums of threads: each has a part, and all get the whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spaces.targets.gpu import WARP
from spaces.templates.gpu_memory.rows.setting import Setting
from spaces.templates.thread_program import exchange

Join = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Threads:
    """Where a thread is in its block.

    Attributes:
        number: of all threads of the block.
        lane: of those that share its item out; `item` tells which item of the block.
    """

    number: Any
    lane: Any
    item: Any


def join_rows(T: Any, threads: Threads, setting: Setting, sums: Any, join: Join) -> None:
    """Join the sum of each thread with those of the threads next to it that share its item: within
    warps, then those of warps through shared memory."""
    lanes = int(setting.lane_threads)
    _join_lanes(T, sums, min(lanes, WARP), join)
    if lanes <= WARP:
        return
    warps = lanes // WARP
    shared = T.alloc_buffer((warps * int(setting.item_threads),), str(sums.dtype), scope="shared")
    with T.If(threads.number % WARP == 0), T.Then():
        T.buffer_store(shared, sums[0], [threads.number // WARP])
    T.evaluate(T.cuda.cta_sync())
    own = threads.item * warps + threads.number % WARP % warps
    T.buffer_store(sums, shared[own], [0])
    _join_lanes(T, sums, warps, join)


def _join_lanes(T: Any, sums: Any, lanes: int, join: Join) -> None:
    distance = lanes // 2
    while distance:
        other = exchange(T, sums[0], distance)
        T.buffer_store(sums, join(sums[0], other), [0])
        distance //= 2


def join_columns(T: Any, threads: Threads, setting: Setting, sums: Any, join: Join) -> None:
    """Join the sums of each thread, one for each element of its vector, with those of the threads
    across the block, through shared memory."""
    lanes, each = int(setting.lane_threads), int(sums.shape[0])
    if lanes == 1:
        return
    wide = int(setting.item_threads) * each
    shared = T.alloc_buffer((lanes * wide,), str(sums.dtype), scope="shared")
    own = threads.lane * wide + threads.item * each

    def put() -> None:
        with T.unroll(each) as i:
            T.buffer_store(shared, sums[i], [own + i])

    put()
    T.evaluate(T.cuda.cta_sync())
    distance = lanes // 2
    while distance:
        with T.If(threads.lane < distance), T.Then():
            with T.unroll(each) as i:
                T.buffer_store(sums, join(sums[i], shared[own + distance * wide + i]), [i])
            put()
        T.evaluate(T.cuda.cta_sync())
        distance //= 2
    with T.unroll(each) as i:
        T.buffer_store(sums, shared[threads.item * each + i], [i])
