"""The settings of a board that timings depend on: its power limit, MIG, the driver.

NVIDIA's management library tells (NVML API Reference, "Device Queries", "Multi Instance GPU
Management"), through the package nvidia-ml-py. Without it, or without the right to ask, nothing is
known of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Board:
    """The settings of the board of a device.

    Attributes:
        driver: version of the driver, such as "580.95.05".
        power_limit_w: watts that it may draw; 0 where that is not told.
        mig: whether it is divided into instances.
    """

    driver: str
    power_limit_w: int
    mig: bool

    def to_text(self) -> str:
        """The settings for a fingerprint."""
        power = f" power={self.power_limit_w}W" if self.power_limit_w else ""
        return f"driver={self.driver}{power}{' mig' if self.mig else ''}"


def open_board(bus_id: str) -> tuple[Any, Any]:
    """NVIDIA's library, which whoever opens it shuts down, and its handle of a board.

    Args:
        bus_id: of the device on the PCI bus: NVML counts devices that CUDA does not show.

    Raises:
        Exception: the package is missing, or its library, the driver does not answer, or there is
            no such board.
    """
    nvml = import_module("pynvml")
    nvml.nvmlInit()
    try:
        return nvml, nvml.nvmlDeviceGetHandleByPciBusId(bus_id)
    except BaseException:
        nvml.nvmlShutdown()
        raise


def read_board(bus_id: str) -> Board | None:
    """The settings of a board, see `open_board`; None where they are not told."""
    try:
        nvml, handle = open_board(bus_id)
    except Exception:  # see `open_board`
        return None
    try:
        return Board(
            _text(nvml.nvmlSystemGetDriverVersion()),
            round(_ask_board(nvml.nvmlDeviceGetEnforcedPowerLimit, handle, 0) / 1000),
            bool(_ask_board(lambda h: nvml.nvmlDeviceGetMigMode(h)[0], handle, 0)),
        )
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _ask_board(ask: Any, handle: Any, otherwise: int) -> int:
    """What a board tells; boards of less than a data centre have neither."""
    nvml = import_module("pynvml")
    try:
        return int(ask(handle))
    except nvml.NVMLError:
        return otherwise


def _text(told: Any) -> str:
    return told.decode() if isinstance(told, bytes) else str(told)
