"""A device's numbers, from a driver and from the table."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from spaces.targets.nvidia.driver import read_device, why_no_device
from spaces.targets.nvidia.numbers import Numbers, architecture_of, numbers_of_tag, usual_numbers
from tests.spaces.targets.nvidia.fake_driver import H100, NO_DEVICE, NOT_INITIALIZED, fake_driver


def test_the_driver_says_what_a_device_has(tmp_path: Path) -> None:
    device = read_device(fake_driver(tmp_path, H100))
    assert device is not None
    assert (device.name, device.architecture) == ("NVIDIA H100 80GB HBM3", 90)
    assert (device.cuda, device.bus_id) == ("13.0", "0000:1B:00.0")
    assert device.numbers == Numbers(132, 50 << 20, 228 << 10, 227 << 10, 2048, 1980, 3352)


def test_the_table_says_the_same_of_the_usual_one() -> None:
    assert usual_numbers(90) == Numbers(132, 50 << 20, 228 << 10, 227 << 10, 2048, 1980, 3352)


def test_what_a_driver_does_not_say_is_taken_from_the_table(tmp_path: Path) -> None:
    """Newer drivers leave clocks out."""
    silent = {n: value for n, value in H100.items() if n not in (13, 36)}
    device = read_device(fake_driver(tmp_path, silent))
    assert device is not None
    assert (device.numbers.megahertz, device.numbers.gigabytes_per_s) == (0, 0)
    assert device.numbers.or_else(usual_numbers(90)) == usual_numbers(90)


@pytest.mark.parametrize("answers", [{"init": NO_DEVICE}, {"devices": 0}])
def test_a_driver_that_shows_no_device_has_none(tmp_path: Path, answers: dict[str, int]) -> None:
    assert read_device(fake_driver(tmp_path, H100, **answers)) is None  # type: ignore[arg-type]


def test_without_a_driver_there_is_no_device(tmp_path: Path) -> None:
    assert read_device(str(tmp_path / "libcuda.so.1")) is None


def test_numbers_travel_as_text() -> None:
    numbers, other = usual_numbers(90), usual_numbers(80)
    assert other.updated(numbers.to_text()) == replace(numbers, l2_bytes=other.l2_bytes)
    assert other.updated("") == other.updated("Hopper, of sorts") == other
    assert other.updated("sms=7").multiprocessors == 7


def test_a_device_that_is_named_has_numbers_of_its_own() -> None:
    named = numbers_of_tag("nvidia/nvidia-a10")
    assert named is not None
    assert named.multiprocessors == 72 != usual_numbers(86).multiprocessors
    assert numbers_of_tag("nvidia/nvidia-h100") is None


@pytest.mark.parametrize(("arch", "number"), [("sm_90a", 90), ("sm_120", 120), ("", 0)])
def test_an_architecture_has_a_number(arch: str, number: int) -> None:
    assert architecture_of(arch) == number


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ({"init": NO_DEVICE}, r"does not start: CUDA_ERROR_NO_DEVICE \(100\)"),
        ({"init": NOT_INITIALIZED}, r"does not start: CUDA_ERROR_OTHER \(3\)"),
        ({"devices": 0}, r"shows no device: CUDA_ERROR_INVALID_DEVICE \(101\)"),
        ({"cuda": 12080}, r"takes CUDA 12\.8 at most, and TVM's wheel is made for 13\.0"),
    ],
)
def test_a_driver_that_gives_no_device_says_why(
    tmp_path: Path, answers: dict[str, int], says: str
) -> None:
    why = why_no_device(fake_driver(tmp_path, H100, **answers))  # type: ignore[arg-type]
    assert re.search(says, why)
    assert "\n" not in why


def test_a_driver_that_gives_one_has_no_excuse(tmp_path: Path) -> None:
    assert why_no_device(fake_driver(tmp_path, H100)) == ""


def test_a_driver_that_is_missing_is_named() -> None:
    assert "libno-such-driver.so" in why_no_device("libno-such-driver.so")
