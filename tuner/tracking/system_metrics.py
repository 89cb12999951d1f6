"""What the machine that hosts the search is busy with, as system metrics in MLflow.

MLflow's monitors are read in the tracker's process, which gives way to all others and is frozen
while a kernel is timed on a CPU, and never in the session's. MLflow's own thread would send what it
reads itself, and give up when a server is away; here samples are kept in the run folder, an entry a
line, and sent as all other entries are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tuner.tracking.entries import Metrics, encode

_log = logging.getLogger("tuner.tracker")

GROUP = "system/"
"""MLflow's pages have a place of its own for metrics that begin so."""
_LEAST_S = 1.0
"""The least time that a sample is about: the last one may come soon after another."""


class Monitor(Protocol):
    """One of MLflow's monitors."""

    def collect_metrics(self) -> None:
        """Look once."""

    def aggregate_metrics(self) -> dict[str, float]:
        """The means of all looks since the last `clear_metrics`."""

    def clear_metrics(self) -> None:
        """Forget all looks."""


class SystemSamples:
    """Takes a sample every few seconds. Never raises but ImportError.

    Args:
        path: file for the samples.
        monitors: makes the monitors, and says how many seconds lie between two samples.
        clock: monotonic seconds.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        path: Path,
        monitors: Callable[[], tuple[Sequence[Monitor], float]],
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._path = path
        self._make = monitors
        self._clock = clock
        self._wall = wall
        self._begun = False
        self._monitors: Sequence[Monitor] = ()
        self._interval_s = 0.0
        self._last_s = 0.0
        self._step = 0
        self._broken = False

    def tick(self, *, last: bool = False) -> None:
        """Take a sample if it is time, or if it is the last one."""
        if self._broken:
            return
        try:
            if not self._begun:
                self._begin()
            elif self._due(self._interval_s) or (last and self._due(_LEAST_S)):
                self._sample()
        except ImportError:
            raise
        except Exception as error:  # border: drivers and settings fail in many ways
            self._broken = True
            _log.warning("no system metrics: %s", error)

    def _begin(self) -> None:
        self._monitors, self._interval_s = self._make()
        self._broken = not self._monitors
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._step = self._count()
        self._begun = True
        for monitor in self._monitors:
            monitor.collect_metrics()  # the CPU's use is that since the look before
            monitor.clear_metrics()
        self._last_s = self._clock()

    def _due(self, after_s: float) -> bool:
        return self._clock() - self._last_s >= after_s

    def _sample(self) -> None:
        self._last_s = self._clock()
        values: dict[str, float] = {}
        for monitor in self._monitors:
            monitor.collect_metrics()
            found = monitor.aggregate_metrics()
            values |= {GROUP + name: float(value) for name, value in found.items()}
            monitor.clear_metrics()
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(encode(Metrics(None, self._step, values, self._wall())) + "\n")
            self._step += 1

    def _count(self) -> int:
        """The number of samples of earlier sessions. A tail without an end, left by a crash,
        becomes a line, which the reader skips."""
        if not self._path.exists():
            return 0
        lines = self._path.read_bytes().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            with self._path.open("ab") as file:
                file.write(b"\n")
        return len(lines)
