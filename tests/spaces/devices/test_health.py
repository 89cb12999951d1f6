"""The condition of a device, in words."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import pytest

from spaces.devices.health import Health, Nvml, read_health
from tuner.record import Conditions


@dataclass
class FakeMonitor:
    bits: int = 0
    processes: list[int] = field(default_factory=lambda: [os.getpid()])

    def clock_mhz(self) -> int:
        return 1755

    def most_clock_mhz(self) -> int:
        return 1980

    def temperature_c(self) -> int:
        return 41

    def power_w(self) -> float:
        return 350.5

    def reasons(self) -> int:
        return self.bits

    def pids(self) -> list[int]:
        return self.processes


@pytest.mark.parametrize(
    ("bits", "words", "again"),
    [
        (0x00, (), False),
        (0x01, (), False),  # idle
        (0x02, (), False),  # clocks that somebody set
        (0x04, ("power cap",), False),
        (0x08, ("hardware slowdown",), True),
        (0x20, ("temperature",), True),
        (0x40, ("temperature, by hardware",), True),
        (0x80, ("power brake",), True),
        (0x24, ("power cap", "temperature"), True),
        (0x100, (), False),  # the display's clock
    ],
)
def test_reasons_for_a_lower_clock_are_named(
    bits: int, words: tuple[str, ...], again: bool
) -> None:
    health = read_health(FakeMonitor(bits))
    assert (health.reasons, health.throttled) == (words, again)


@pytest.mark.parametrize(
    ("pids", "strangers"),
    [([], 0), ([os.getpid()], 0), ([os.getpid(), 7], 1), ([123456789], 0), ([123456789, 7], 1)],
)
def test_processes_other_than_this_one_are_counted(pids: list[int], strangers: int) -> None:
    assert read_health(FakeMonitor(processes=pids)).strangers == strangers


def test_a_record_can_keep_all_of_it() -> None:
    health = read_health(FakeMonitor(0x04))
    kept = Conditions(l2="warm", anchor_s=0.25, **health.as_measured())
    assert Conditions.from_json(kept.to_json()) == kept
    assert (kept.clock_mhz, kept.power_w, kept.slowed_by) == (1755, 350.5, ("power cap",))
    assert health == Health(1755, 1980, 41, 350.5, ("power cap",), 0)


def test_a_machine_without_the_library_tells_nothing() -> None:
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("it has one")
    assert Nvml.open("00000000:00:06.0") is None
