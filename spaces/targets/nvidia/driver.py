"""What the CUDA driver says about a device, asked without making a context on it.

The attributes and their numbers are those of `CUdevice_attribute` in cuda.h.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import IntEnum

from spaces.targets.nvidia.numbers import Numbers

LIBRARY = "libcuda.so.1"


class Attribute(IntEnum):
    """Of `CUdevice_attribute`, those that are asked for."""

    CLOCK_RATE = 13  # kHz
    MULTIPROCESSOR_COUNT = 16
    MEMORY_CLOCK_RATE = 36  # kHz
    MEMORY_BUS_WIDTH = 37  # bits
    L2_CACHE_SIZE = 38
    MAX_THREADS_PER_MULTIPROCESSOR = 39
    COMPUTE_CAPABILITY_MAJOR = 75
    COMPUTE_CAPABILITY_MINOR = 76
    MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97


@dataclass(frozen=True, slots=True)
class DriverDevice:
    """The first device that the driver shows this process.

    Attributes:
        name: such as "NVIDIA H100 80GB HBM3".
        architecture: such as 90.
        numbers: what it has; 0 where the driver does not say.
        cuda: the newest CUDA version that the driver takes, such as "13.0".
        bus_id: its place on the PCI bus, by which other libraries know it.
    """

    name: str
    architecture: int
    numbers: Numbers
    cuda: str
    bus_id: str


LEAST_CUDA = (13, 0)
"""The CUDA version of TVM's wheel, which a driver has to take."""


def why_no_device(library: str = LIBRARY) -> str:
    """Why the driver gives TVM no device, in one line; empty where it has one for it.

    Args:
        library: as for `read_device`.
    """
    try:
        driver = ctypes.CDLL(library)
    except OSError as error:
        return str(error)
    if failed := driver.cuInit(0):
        return f"the driver does not start: {_error_name(driver, failed)}"
    device, version = ctypes.c_int(), ctypes.c_int()
    if failed := driver.cuDeviceGet(ctypes.byref(device), 0):
        return f"the driver shows no device: {_error_name(driver, failed)}"
    driver.cuDriverGetVersion(ctypes.byref(version))
    cuda = (version.value // 1000, version.value % 1000 // 10)
    if cuda < LEAST_CUDA:
        said, wanted = (".".join(map(str, v)) for v in (cuda, LEAST_CUDA))
        return f"the driver takes CUDA {said} at most, and TVM's wheel is made for {wanted}"
    return ""


def _error_name(driver: ctypes.CDLL, failed: int) -> str:
    """The driver's name of an error, such as CUDA_ERROR_NO_DEVICE, with its number."""
    name = ctypes.c_char_p()
    driver.cuGetErrorName(failed, ctypes.byref(name))
    return f"{(name.value or b'error').decode(errors='replace')} ({failed})"


def read_device(library: str = LIBRARY) -> DriverDevice | None:
    """The driver's first device; None without a driver, and where it shows no device.

    Args:
        library: the driver's, as the loader finds it; a parameter for tests.
    """
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return None
    device, version = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return None
    driver.cuDriverGetVersion(ctypes.byref(version))
    name = ctypes.create_string_buffer(256)
    bus_id = ctypes.create_string_buffer(64)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceGetPCIBusId(bus_id, len(bus_id), device)

    def ask(attribute: Attribute) -> int:
        value = ctypes.c_int()
        failed = driver.cuDeviceGetAttribute(ctypes.byref(value), int(attribute), device)
        return 0 if failed else value.value

    # Two transfers a clock, of the bus's width in bits; kHz times bytes are 10^3 bytes a second.
    rate = 2 * ask(Attribute.MEMORY_CLOCK_RATE) * ask(Attribute.MEMORY_BUS_WIDTH) // 8
    major, minor = (
        ask(Attribute.COMPUTE_CAPABILITY_MAJOR),
        ask(Attribute.COMPUTE_CAPABILITY_MINOR),
    )
    return DriverDevice(
        name=name.value.decode(errors="replace"),
        architecture=10 * major + minor,
        numbers=Numbers(
            multiprocessors=ask(Attribute.MULTIPROCESSOR_COUNT),
            l2_bytes=ask(Attribute.L2_CACHE_SIZE),
            multiprocessor_shared_bytes=ask(Attribute.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
            block_shared_bytes=ask(Attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
            resident_threads=ask(Attribute.MAX_THREADS_PER_MULTIPROCESSOR),
            megahertz=round(ask(Attribute.CLOCK_RATE) / 1000),
            gigabytes_per_s=round(rate / 1e6),
        ),
        cuda=f"{version.value // 1000}.{version.value % 1000 // 10}",
        bus_id=bus_id.value.decode(errors="replace"),
    )
