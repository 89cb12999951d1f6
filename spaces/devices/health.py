"""The condition of a CUDA device: clocks, temperature, power, throttling, other processes.

NVIDIA's management library tells (NVML API Reference, "Device Queries", "Clocks Event Reasons"),
through the package nvidia-ml-py. Where the package or the library is missing, nothing is known.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any, Protocol

from spaces.targets.nvidia.board import open_board

_log = logging.getLogger(__name__)

_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "temperature",
    0x40: "temperature, by hardware",
    0x80: "power brake",
}
"""Reasons for a lower clock that slow a kernel down. An idle device, clocks that an administrator
set and the link between boards are none of them."""
_PASSING = frozenset(
    {"hardware slowdown", "temperature", "temperature, by hardware", "power brake"}
)
"""Those that a pause may end. At its power cap a large kernel runs whenever it runs."""


@dataclass(frozen=True, slots=True)
class Health:
    """The condition of a device at one moment.

    Attributes:
        clock_mhz: of the multiprocessors; `most_clock_mhz` is the most that the device can do.
        reasons: why the clock is below that, in words.
        strangers: other processes that compute on the device, as far as they can be seen.
    """

    clock_mhz: int
    most_clock_mhz: int
    temperature_c: int
    power_w: float
    reasons: tuple[str, ...] = ()
    strangers: int = 0

    @property
    def throttled(self) -> bool:
        """Whether times taken now should be taken again after a pause."""
        return any(reason in _PASSING for reason in self.reasons)

    def as_measured(self) -> dict[str, Any]:
        """The fields of `tuner.record.Conditions` that this gives."""
        return {
            "clock_mhz": self.clock_mhz,
            "most_clock_mhz": self.most_clock_mhz,
            "temperature_c": self.temperature_c,
            "power_w": self.power_w,
            "slowed_by": self.reasons,
            "strangers": self.strangers,
        }


class Monitor(Protocol):
    """What `read_health` asks of a device."""

    def clock_mhz(self) -> int:
        """Of the multiprocessors, now."""

    def most_clock_mhz(self) -> int:
        """Of the multiprocessors, at best."""

    def temperature_c(self) -> int:
        """Of the chip."""

    def power_w(self) -> float:
        """Drawn by the board."""

    def reasons(self) -> int:
        """Bits that say why the clock is not higher."""

    def pids(self) -> list[int]:
        """Processes that have a context on the device."""


def read_health(monitor: Monitor) -> Health:
    """The condition of a device now."""
    bits, pids = monitor.reasons(), monitor.pids()
    # In a container the ids are another's: then one of them, whichever, is this process.
    others = [pid for pid in pids if pid != os.getpid()]
    strangers = len(others) if len(others) < len(pids) else max(0, len(pids) - 1)
    return Health(
        monitor.clock_mhz(),
        monitor.most_clock_mhz(),
        monitor.temperature_c(),
        monitor.power_w(),
        tuple(word for bit, word in _REASONS.items() if bits & bit),
        strangers,
    )


class Nvml:
    """Implements `Monitor` by NVIDIA's library."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library, self._handle = library, handle

    @classmethod
    def open(cls, bus_id: str) -> Nvml | None:
        """A device by its PCI bus id, for the life of the process; None where NVML cannot tell of
        it."""
        try:
            found = cls(*open_board(bus_id))
            read_health(found)
        except Exception as error:  # no package, no library, or a device that does not tell
            _log.warning("nothing is known of the device's clocks and temperature: %s", error)
            return None
        return found

    def clock_mhz(self) -> int:
        """See `Monitor`."""
        return int(self._library.nvmlDeviceGetClockInfo(self._handle, self._library.NVML_CLOCK_SM))

    def most_clock_mhz(self) -> int:
        """See `Monitor`."""
        sm = self._library.NVML_CLOCK_SM
        return int(self._library.nvmlDeviceGetMaxClockInfo(self._handle, sm))

    def temperature_c(self) -> int:
        """See `Monitor`."""
        chip = self._library.NVML_TEMPERATURE_GPU
        return int(self._library.nvmlDeviceGetTemperature(self._handle, chip))

    def power_w(self) -> float:
        """See `Monitor`."""
        return float(self._library.nvmlDeviceGetPowerUsage(self._handle)) / 1e3

    def reasons(self) -> int:
        """See `Monitor`."""
        return int(self._library.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))

    def pids(self) -> list[int]:
        """See `Monitor`."""
        found = self._library.nvmlDeviceGetComputeRunningProcesses(self._handle)
        return [int(process.pid) for process in found]
