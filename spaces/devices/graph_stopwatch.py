"""Timing on a CUDA device by graphs: many launches in one, so that short kernels show their time.

A launch from the host takes 4.5 us on an H100, whatever the kernel; in a graph of 200 the same
kernel takes 0.9 us, and a kernel of 56 us is 56 us either way
(`benchmarks/results/gpu/probe-h100.json`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

from spaces.devices.health import Health, Nvml, read_health
from spaces.devices.runtime import CudaRuntime, Graph, Runtime
from spaces.devices.stopwatch import Loaded, run_once
from spaces.targets.gpu import gpu_of
from spaces.targets.nvidia.driver import read_device
from tuner.record import Conditions
from tuner.request.target_text import is_cold

_T = TypeVar("_T")
_MOST_LAUNCHES = 200
"""Launches in one graph. What one launch of a graph costs, 5 us, is shared by all of them."""
_WAKE_S = 0.004
"""An idle device is at a sixth of its clock. On an H100 the first runs after a pause are slow, and
the clock is up before this has passed."""
_WAKE_RUNS = 2_000
_AT_ONCE = 16
"""Launches that the host sends ahead of the device while it wakes it."""
_ANCHOR_BYTES, _ANCHOR_FILLS = 128 << 20, 4
_FLUSHED = 4
"""Sizes of the L2 cache that are written so that nothing else is left in it. Which lines it
replaces is not documented; if any at random, exp(-4) of what was there is left, 2 %. To write more
would be more time that has to be taken off, with its noise."""
_COLD_LAUNCHES = 10
"""Launches in one graph at least, if filling the cache is timed as well: a short kernel's time is
the difference of two that are much longer."""
_TRIES, _COOL_S = 3, 0.2
"""A throttled device is left alone for this long, so many times less one, before what it gives is
taken as it is."""


class GraphStopwatch:
    """Implements `spaces.devices.stopwatch.Stopwatch` for a CUDA device.

    Args:
        health: reads the device's condition; None where nothing can be known of it.
        flush_bytes: have each run find so many bytes of other data in the L2 cache. Runs are then
            timed together with what fills it, and the time of filling alone is taken off. With 0
            runs find what the one before left.
    """

    def __init__(
        self,
        runtime: Runtime,
        health: Callable[[], Health] | None = None,
        *,
        flush_bytes: int = 0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._runtime, self._health, self._sleep = runtime, health, sleep
        self._flush_bytes = flush_bytes
        self._anchor: Graph | None = None

    def run_once(self, loaded: Loaded) -> float:
        """See `Stopwatch`. The clock is brought up before: a kernel may be cut off by this run."""

        def run() -> float:
            self._bring_up()
            if self._flush_bytes:
                self._runtime.memset(self._flush_bytes)()
            return run_once(loaded, self._runtime.synchronize)

        return self._at_full_speed(run)

    def wake(self, loaded: Loaded, runs: int) -> None:
        """See `Stopwatch`."""
        kernel, started_s, done = loaded.function(), time.perf_counter(), 0
        while done < runs or (done < _WAKE_RUNS and time.perf_counter() - started_s < _WAKE_S):
            kernel(*loaded.arguments)
            done += 1
            if done % _AT_ONCE == 0:
                self._runtime.synchronize()
        self._runtime.synchronize()

    def samples(self, loaded: Loaded, runs: int, count: int) -> tuple[float, ...]:
        """See `Stopwatch`."""
        return self._at_full_speed(lambda: self._sample(loaded, runs, count))

    def conditions(self) -> Conditions:
        """See `Stopwatch`. The fixed work is the filling of 512 MiB of the device's memory."""
        anchor_s = self._work_s()
        known = {} if self._health is None else self._health().as_measured()
        l2 = "cold" if self._flush_bytes else "warm"
        return Conditions(l2=l2, anchor_s=anchor_s, **known)

    def _at_full_speed(self, measure: Callable[[], _T]) -> _T:
        """What is measured, once more where the device throttled meanwhile."""
        for _ in range(_TRIES - 1):
            measured = measure()
            if self._health is None or not self._health().throttled:
                return measured
            self._sleep(_COOL_S)
        return measure()

    def _bring_up(self) -> None:
        """Do the fixed work until the clock is up."""
        left_s = _WAKE_S
        for _ in range(_WAKE_RUNS):
            left_s -= self._work_s()
            if left_s <= 0:
                return

    def _work_s(self) -> float:
        """Seconds of some fixed work."""
        if self._anchor is None:
            fill = self._runtime.memset(_ANCHOR_BYTES)
            self._anchor = self._runtime.graph([fill], _ANCHOR_FILLS)
            self._anchor.launch(1)
        return self._anchor.launch(1)

    def _sample(self, loaded: Loaded, runs: int, count: int) -> tuple[float, ...]:
        kernel = loaded.function()
        launches = min(max(runs, _COLD_LAUNCHES if self._flush_bytes else 1), _MOST_LAUNCHES)
        replays = -(-runs // launches)

        def launch() -> None:
            kernel(*loaded.arguments)

        if self._flush_bytes:
            return self._sample_cold(launch, launches, replays, count)
        with closing(self._runtime.graph([launch], launches)) as graph:
            graph.launch(1)  # the first replay loads what the graph needs
            return tuple(graph.launch(replays) / (launches * replays) for _ in range(count))

    def _sample_cold(
        self, launch: Callable[[], None], launches: int, replays: int, count: int
    ) -> tuple[float, ...]:
        fill = self._runtime.memset(self._flush_bytes)
        with (
            closing(self._runtime.graph([fill, launch], launches)) as both,
            closing(self._runtime.graph([fill], launches)) as alone,
        ):
            both.launch(1)
            alone.launch(1)
            spans_s = [both.launch(replays) - alone.launch(replays) for _ in range(count)]
        return tuple(span_s / (launches * replays) for span_s in spans_s)


def cuda_stopwatch(device: Any, target: str) -> GraphStopwatch:
    """The stopwatch of TVM's CUDA device.

    Args:
        target: canonical JSON; it says whether runs are to find other data in the L2 cache.

    Raises:
        OSError, DeviceFault: see `CudaRuntime`.
    """
    here = read_device()
    nvml = None if here is None else Nvml.open(here.bus_id)
    health = None if nvml is None else lambda: read_health(nvml)
    known = gpu_of(target).numbers
    l2_bytes = (known if here is None else here.numbers.or_else(known)).l2_bytes
    flush_bytes = _FLUSHED * l2_bytes if is_cold(target) else 0
    return GraphStopwatch(CudaRuntime(device), health, flush_bytes=flush_bytes)
