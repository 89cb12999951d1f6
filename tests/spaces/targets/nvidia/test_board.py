"""What NVML tells of a board, by a fake of its package that fails in each known way."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from spaces.targets.nvidia.board import Board, read_board

BUS = "0000:1B:00.0"


class FakeNvml(types.ModuleType):
    """nvidia-ml-py, as far as it is called."""

    class NVMLError(Exception):
        pass

    def __init__(self, **answers: Any) -> None:
        super().__init__("pynvml")
        self.answers = {"driver": "580.95.05", "power": 700000, "mig": (0, 0), **answers}
        self.open = 0

    def _told(self, what: str) -> Any:
        answer = self.answers[what]
        if answer is None:
            raise self.NVMLError(what)
        return answer

    def nvmlInit(self) -> None:
        self._told("driver")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: str) -> str:
        if bus_id != BUS:
            raise self.NVMLError("not found")
        return bus_id

    def nvmlSystemGetDriverVersion(self) -> Any:
        return self._told("driver")

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> Any:
        return self._told("power")

    def nvmlDeviceGetMigMode(self, handle: str) -> Any:
        return self._told("mig")


def board(monkeypatch: pytest.MonkeyPatch, bus_id: str = BUS, **answers: Any) -> Board | None:
    nvml = FakeNvml(**answers)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    found = read_board(bus_id)
    assert nvml.open == 0, "each one that is opened is closed"
    return found


def test_a_board_tells_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    found = board(monkeypatch)
    assert found == Board("580.95.05", 700, False)
    assert found.to_text() == "driver=580.95.05 power=700W"
    divided = board(monkeypatch, mig=(1, 1), driver=b"580.95.05")
    assert divided is not None
    assert divided.to_text() == "driver=580.95.05 power=700W mig"


def test_what_a_board_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = board(monkeypatch, power=None, mig=None)
    assert found is not None
    assert found.to_text() == "driver=580.95.05"


def test_nothing_is_known_without_the_library_or_of_another_board(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert board(monkeypatch, driver=None) is None
    assert board(monkeypatch, "0000:00:00.0") is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert read_board(BUS) is None
