"""Kernels on a CUDA device are timed by graphs: here on a device that is a clock. A real one has
`tests/spaces/devices/test_real_device.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from spaces.devices import graph_stopwatch
from spaces.devices.graph_stopwatch import GraphStopwatch, cuda_stopwatch
from spaces.devices.runtime import OUT_OF_MEMORY, DeviceFault
from spaces.devices.stopwatch import Loaded
from spaces.targets.nvidia.driver import read_device
from tests.spaces.devices.fake_cuda import LAUNCH_S, FakeKernel, FakeRuntime
from tests.spaces.targets.nvidia.fake_driver import H100, fake_driver
from tuner.request import target_text

L2 = 50 << 20


def made(
    runtime: FakeRuntime, warm_s: float, cold_s: float = 0.0, **settings: int
) -> tuple[GraphStopwatch, FakeKernel, Loaded]:
    kernel = FakeKernel(runtime, warm_s, cold_s or warm_s)
    watch = GraphStopwatch(runtime, runtime.health, sleep=runtime.cool, **settings)
    return watch, kernel, Loaded(kernel, ())


@pytest.mark.parametrize("own_s", [0.3e-6, 2e-6, 40e-6, 3e-3])
def test_a_kernel_has_its_own_time_however_long_a_launch_takes(own_s: float) -> None:
    watch, _, loaded = made(FakeRuntime(), own_s)
    samples = watch.samples(loaded, 1000, 5)
    assert len(samples) == 5
    assert all(own_s <= sample < own_s + LAUNCH_S / 50 for sample in samples)


def test_each_sample_has_at_least_the_runs_that_were_asked_for() -> None:
    for runs in (1, 7, 200, 201, 1000):
        runtime = FakeRuntime()
        watch, kernel, loaded = made(runtime, 1e-6)
        watch.samples(loaded, runs, 3)
        assert kernel.runs >= 3 * runs
        assert runtime.open_graphs == 0


def test_a_warm_run_finds_what_the_one_before_left_and_a_cold_one_does_not() -> None:
    runtime = FakeRuntime()
    watch, _, loaded = made(runtime, warm_s=5e-6, cold_s=9e-6)
    assert min(watch.samples(loaded, 400, 3)) == pytest.approx(5e-6, rel=0.02)
    assert watch.conditions().l2 == "warm"
    watch, _, loaded = made(runtime, warm_s=5e-6, cold_s=9e-6, flush_bytes=2 * L2)
    assert min(watch.samples(loaded, 400, 3)) == pytest.approx(9e-6, rel=0.02)
    assert watch.conditions().l2 == "cold"


def test_samples_of_a_throttled_device_are_taken_again_after_a_pause() -> None:
    runtime = FakeRuntime(clocks=[0.5, 1.0])
    watch, _, loaded = made(runtime, 10e-6)
    assert watch.samples(loaded, 200, 3) == pytest.approx([10e-6] * 3, rel=0.02)
    assert watch.conditions().slowed_by == ()


def test_a_device_that_stays_throttled_gives_times_that_say_so() -> None:
    runtime = FakeRuntime(clocks=[0.5])
    watch, kernel, loaded = made(runtime, 10e-6)
    assert watch.samples(loaded, 200, 3) == pytest.approx([20e-6] * 3, rel=0.02)
    assert kernel.runs < 10 * 200 * 4, "it must end"
    told = watch.conditions()
    assert (told.slowed_by, told.clock_mhz, told.most_clock_mhz) == (("temperature",), 990, 1980)


def test_the_clock_is_up_before_a_run_that_may_cut_a_kernel_off() -> None:
    watch, kernel, loaded = made(FakeRuntime(asleep_s=3e-3), 10e-3)
    watch.run_once(loaded)
    assert kernel.took_s == 10e-3


def test_a_single_run_on_a_throttled_device_is_made_again_too() -> None:
    watch, kernel, loaded = made(FakeRuntime(clocks=[0.5, 1.0]), 50e-3)
    watch.run_once(loaded)
    assert (kernel.runs, kernel.took_s) == (2, 50e-3)


def test_the_anchor_tells_a_slow_device_from_a_slow_kernel() -> None:
    runtime = FakeRuntime(clocks=[1.0, 0.5])
    watch, _, _ = made(runtime, 10e-6)
    before_s = watch.conditions().anchor_s
    runtime.cool(0.0)
    assert watch.conditions().anchor_s == pytest.approx(2 * before_s, rel=0.02)


def test_nothing_is_said_of_a_device_that_does_not_tell() -> None:
    runtime = FakeRuntime()
    watch = GraphStopwatch(runtime, None)
    kernel = FakeKernel(runtime, 1e-6, 1e-6)
    watch.samples(Loaded(kernel, ()), 10, 1)
    told = watch.conditions()
    assert (told.clock_mhz, told.temperature_c, told.slowed_by) == (0, 0, ())


@pytest.mark.parametrize("call", ["launch", "synchronize", "graph", "memset"])
@pytest.mark.parametrize("name", ["cudaErrorIllegalAddress", *OUT_OF_MEMORY])
def test_an_error_of_the_driver_has_its_name(call: str, name: str) -> None:
    runtime = FakeRuntime()
    watch, _, loaded = made(runtime, 1e-6)
    runtime.fails[call] = name
    with pytest.raises(DeviceFault, match=name):
        watch.samples(loaded, 10, 1) if call in ("launch", "graph") else watch.run_once(loaded)
    assert runtime.recording is None
    assert runtime.open_graphs <= 1, "but that of the fixed work"


def test_a_device_is_woken_by_at_least_the_runs_asked_for() -> None:
    watch, kernel, loaded = made(FakeRuntime(), 1e-6)
    watch.wake(loaded, 50)
    assert 50 <= kernel.runs <= 5000


CUDA = '{"arch":"sm_80","kind":"cuda"}'


@pytest.mark.parametrize("l2_bytes", [L2, 0])
def test_the_cache_that_a_cold_target_flushes_is_the_device_s_own_four_times(
    l2_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that does not say leaves the target's: an A100's."""
    driver = fake_driver(tmp_path, {**H100, 38: l2_bytes})
    runtime, filled = FakeRuntime(), []
    monkeypatch.setattr(graph_stopwatch, "read_device", lambda: read_device(driver))
    monkeypatch.setattr(graph_stopwatch.Nvml, "open", lambda bus: None)
    monkeypatch.setattr(graph_stopwatch, "CudaRuntime", lambda device: runtime)
    memset = runtime.memset
    monkeypatch.setattr(runtime, "memset", lambda size: filled.append(size) or memset(size))
    kernel = FakeKernel(runtime, 5e-6, 9e-6)
    for target, says in ((target_text.l2(CUDA, "cold"), "cold"), (CUDA, "warm")):
        filled.clear()
        watch = cuda_stopwatch(None, target)
        assert watch.samples(Loaded(kernel, ()), 400, 1) == pytest.approx(
            [9e-6 if says == "cold" else 5e-6], rel=0.02
        )
        assert set(filled) == ({4 * (l2_bytes or 40 << 20)} if says == "cold" else set())
        assert watch.conditions().l2 == says


def test_a_run_that_is_timed_by_itself_finds_a_cold_cache_too() -> None:
    runtime = FakeRuntime()
    watch, kernel, loaded = made(runtime, warm_s=5e-6, cold_s=9e-6, flush_bytes=2 * L2)
    watch.run_once(loaded)
    runtime.in_cache, before_s = kernel, runtime.now_s
    watch.run_once(loaded)
    assert runtime.now_s - before_s > 9e-6


def test_a_short_kernel_is_told_from_the_filling_by_many_runs() -> None:
    runtime = FakeRuntime()
    watch, kernel, loaded = made(runtime, warm_s=1e-6, flush_bytes=2 * L2)
    assert watch.samples(loaded, 1, 1) == pytest.approx([1e-6], rel=0.02)
    assert kernel.runs >= 10
