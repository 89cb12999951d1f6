"""CUDA targets: one text for one device however it was said, and what kernels may assume of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spaces.targets import cuda
from spaces.targets.backends import BACKENDS, backend_of
from spaces.targets.gpu import gpu_of
from spaces.targets.nvidia.board import Board
from spaces.targets.nvidia.driver import read_device
from spaces.targets.target import (
    asks_for,
    device_fingerprint,
    parse_target,
    resolve_target,
    takes_the_same,
)
from tests.contracts.programs import gemm_task
from tests.spaces.targets.nvidia.fake_driver import H100, H100_PCIE, fake_driver
from tuner.errors import TunerError
from tuner.request import target_text

pytestmark = pytest.mark.tvm

WAYS = (
    '{"kind":"cuda","arch":"sm_90"}',
    '{"kind":"cuda","arch":"sm_90a"}',
    '{"arch":"sm_90","kind":"cuda","max_threads_per_block":1024,"keys":[]}',
    "nvidia/nvidia-h100",
    '{"tag":"nvidia/nvidia-h100"}',
)
"""Ways to say an H100."""


@pytest.fixture(autouse=True)
def without_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has none, also where this one has."""
    monkeypatch.setattr(cuda, "why_no_runtime", lambda: "libcuda.so.1: no such file")
    monkeypatch.setattr(cuda, "read_device", lambda: None)


@pytest.fixture
def with_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[dict[int, int]], None]:
    """Give this machine a device, of which TVM says what it says of any Hopper."""
    from tvm.target import Target

    class Hopper:
        exist = True
        compute_version, device_name = "9.0", "NVIDIA H100"

    said = {"max_shared_memory_per_block": 49152, "max_threads_per_block": 1024}

    def give(attributes: dict[int, int]) -> None:
        library = fake_driver(tmp_path, attributes)
        monkeypatch.setattr(cuda, "device", Hopper)
        monkeypatch.setattr(cuda, "why_no_runtime", lambda: "")
        monkeypatch.setattr(cuda, "read_device", lambda: read_device(library))
        found = Target({"kind": "cuda", "arch": "sm_90", "thread_warp_size": 32, **said})
        monkeypatch.setattr(Target, "from_device", lambda device: found)

    return give


def test_a_device_has_one_text_however_it_is_said() -> None:
    (text,) = {resolve_target(way) for way in WAYS}
    assert json.loads(text)["arch"] == "sm_90"


def test_a_device_that_is_found_has_that_text_too(
    with_device: Callable[[dict[int, int]], None],
) -> None:
    by_hand = {resolve_target(way) for way in WAYS}
    with_device(H100)
    assert {resolve_target("cuda"), resolve_target("auto"), *map(resolve_target, WAYS)} == by_hand


def test_auto_says_why_a_device_that_is_here_is_not_used(
    with_device: Callable[[dict[int, int]], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    resolve_target("auto")
    assert caplog.text == "", "none is here"
    with_device(H100)
    why = "libcudart.so.13: cannot open shared object file"
    monkeypatch.setattr(cuda, "why_no_runtime", lambda: why)
    assert json.loads(resolve_target("auto"))["kind"] == "llvm"
    assert why in caplog.text
    assert "elastic-tuner[cuda]" in caplog.text


def test_tasks_of_equal_targets_have_equal_keys() -> None:
    assert len({gemm_task(resolve_target(way)).key for way in WAYS}) == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_run_goes_on_with_the_target_said_in_another_way(way: str) -> None:
    assert asks_for(way, resolve_target(WAYS[0]))
    assert not asks_for(way, resolve_target('{"kind":"cuda","arch":"sm_80"}'))


def test_a_device_of_the_same_architecture_keeps_its_own_numbers(
    with_device: Callable[[dict[int, int]], None],
) -> None:
    usual = gpu_of(resolve_target(WAYS[0]))
    with_device(H100_PCIE)
    found = gpu_of(resolve_target("cuda"))
    assert (usual.multiprocessors, found.multiprocessors) == (132, 114)
    assert found.numbers.gigabytes_per_s == 2039
    assert gpu_of(resolve_target(WAYS[0])) == found, "said by hand, on the machine that has it"
    other = gpu_of(resolve_target('{"kind":"cuda","arch":"sm_80"}'))
    assert other.multiprocessors == 108


def test_a_tag_of_another_device_than_the_usual_one_names_it() -> None:
    a10, ga102 = (
        resolve_target(t) for t in ("nvidia/nvidia-a10", '{"kind":"cuda","arch":"sm_86"}')
    )
    assert gpu_of(a10).multiprocessors == 72
    assert gpu_of(ga102).multiprocessors == 82


def test_what_is_said_goes_before_what_is_known() -> None:
    said: dict[str, Any] = {
        "kind": "cuda",
        "arch": "sm_90",
        "model": "sms=16",
        "l2_cache_size_bytes": 7,
    }
    numbers = gpu_of(resolve_target(json.dumps(said))).numbers
    assert (numbers.multiprocessors, numbers.l2_bytes) == (16, 7)
    assert numbers.megahertz == 1980


def test_48_kib_are_the_limit_of_declared_shared_memory_alone() -> None:
    gpu = gpu_of(resolve_target(WAYS[0]))
    assert (gpu.shared_bytes, gpu.dynamic_shared_bytes) == (48 << 10, 227 << 10)
    assert gpu.numbers.multiprocessor_shared_bytes == 228 << 10
    assert gpu.kept_shared_bytes == 1 << 10
    more = '{"kind": "cuda", "arch": "sm_90", "max_shared_memory_per_block": 232448}'
    assert replace(gpu_of(resolve_target(more)), numbers=gpu.numbers) == gpu


def test_a_fingerprint_has_what_changes_a_device_s_times(
    with_device: Callable[[dict[int, int]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = resolve_target(WAYS[0])
    assert device_fingerprint(target) == "cuda sm_90"
    with_device(H100)
    found = set()
    for board in (
        None,
        Board("580.95.05", 700, False),
        Board("580.126.09", 700, False),
        Board("580.95.05", 350, False),
        Board("580.95.05", 700, True),
    ):
        asked: list[str] = []
        monkeypatch.setattr(cuda, "read_board", lambda bus, b=board, a=asked: a.append(bus) or b)
        found.add(device_fingerprint(target))
        assert asked == ["0000:1B:00.0"]
    assert len(found) == 5
    assert "cuda NVIDIA H100 cc=9.0 driver=580.95.05 power=700W" in found
    assert "cuda NVIDIA H100 cc=9.0 driver=580.95.05 power=700W mig" in found


@pytest.mark.parametrize(
    ("why", "helps"),
    [
        ("libcudart.so.13: cannot open shared object file", "elastic-tuner[cuda]"),
        ("libcuda.so.1: cannot open shared object file", ""),
        ("the driver does not start: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)", "driver is 580"),
    ],
)
def test_a_target_that_this_machine_cannot_be_says_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, why: str, helps: str
) -> None:
    monkeypatch.setattr(cuda, "why_no_runtime", lambda: why)
    with pytest.raises(TunerError, match="has no CUDA device") as refused:
        resolve_target("cuda")
    assert why in str(refused.value)
    assert helps in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not cuda.present()


MARKS = {
    "fast math": (target_text.fast_math, target_text.FAST_MATH),
    "tf32": (target_text.tf32, target_text.TF32),
    "cold": (lambda text: target_text.l2(text, "cold"), target_text.COLD_L2),
}


@pytest.mark.parametrize("what", MARKS)
def test_a_mark_makes_another_target_of_the_same_device(what: str) -> None:
    mark, key = MARKS[what]
    plain, marked = resolve_target(WAYS[0]), resolve_target(mark(WAYS[0]))
    assert json.loads(marked) == {**json.loads(plain), "keys": ["cuda", "gpu", key]}
    assert resolve_target(marked) == marked
    assert key in parse_target(marked).keys
    assert str(parse_target(marked).attrs["arch"]) == "sm_90"
    assert backend_of(marked) is backend_of(parse_target(marked)) is BACKENDS[-1]
    assert replace(gpu_of(marked), tf32=False) == gpu_of(plain)
    assert gemm_task(marked).key != gemm_task(plain).key
    # Schedules of one may seed the other, but those of TF32 are of other programs.
    assert takes_the_same(plain, marked) == takes_the_same(marked, plain) == (what != "tf32")
    assert not takes_the_same(resolve_target('{"kind":"cuda","arch":"sm_80"}'), marked)


@pytest.mark.parametrize("what", MARKS)
def test_a_run_goes_on_with_its_marks_and_with_no_others(
    what: str, with_device: Callable[[dict[int, int]], None]
) -> None:
    mark, _ = MARKS[what]
    plain, marked = resolve_target(WAYS[0]), resolve_target(mark(WAYS[0]))
    for ask in ("auto", mark("auto"), mark("cuda"), mark(WAYS[0]), marked):
        assert asks_for(ask, marked)
        assert asks_for(ask, plain) == (ask == "auto")
    for ask in ("cuda", WAYS[0], plain, target_text.l2("auto", "warm")):
        assert asks_for(ask, plain)
        assert not asks_for(ask, marked)
    emulated = resolve_target(target_text.emulate(WAYS[0]))
    assert not asks_for(mark("auto"), emulated)
    with_device(H100)
    assert resolve_target(mark("auto")) == marked


def test_cold_runs_have_a_fingerprint_of_their_own(
    with_device: Callable[[dict[int, int]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = resolve_target(WAYS[0])
    cold, fast = (resolve_target(MARKS[what][0](WAYS[0])) for what in ("cold", "fast math"))
    assert device_fingerprint(cold) == "cuda sm_90 l2=cold"
    with_device(H100)
    monkeypatch.setattr(cuda, "read_board", lambda bus: Board("580.95.05", 700, False))
    assert device_fingerprint(cold) == f"{device_fingerprint(plain)} l2=cold"
    assert device_fingerprint(fast) == device_fingerprint(plain), "the toolchain's differs"
