"""The comparison on a device: what it says, and that a run which is cut off has told most."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import ours
from benchmarks.gpu.workloads import ON_A_DEVICE, Workload
from spaces.targets import cuda
from spaces.targets.target import resolve_target
from tuner.record import Conditions, Measurement, Status

CUDA = '{"kind":"cuda","arch":"sm_90"}'
SMALL = Workload("product", "product", (96, 80, 64))


@pytest.mark.tvm
@pytest.mark.parametrize("workload", ON_A_DEVICE, ids=lambda w: w.name)
def test_each_workload_is_a_task_for_a_device(workload: Workload) -> None:
    task = workload.task(resolve_target(CUDA))
    assert bool(task.flops) != bool(workload.rows)
    assert len(task.shapes) == len(workload.rows)


def test_what_is_known_is_on_disk_after_each_change(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    report = gpu.Report(out, {"device": "none"})
    report.add("a", torch={"torch_us": 2.0})
    report.add("a", ours={"best_us": 4.0})
    assert json.loads(out.read_text())["rows"]["a"].keys() == {"torch", "ours"}


def test_a_side_tells_its_best_its_failures_and_the_devices_condition() -> None:
    side = ours.Side(SMALL, CUDA)
    conditions = Conditions(l2="warm", clock_mhz=1980)
    for number, us in enumerate((9.0, 4.0, 7.0)):
        sample = ours.Sample("product", artifact=bytes([number]), predicted_s=us * 2e-6)
        side.add(sample, Measurement(Status.OK, (us * 1e-6,) * 3, conditions=conditions))
    side.add(ours.Sample("product", error="no such loop"), None)
    side.add(ours.Sample("product", artifact=b"x"), Measurement(Status.WRONG, error="off by 1"))
    told = side.to_json()
    assert told["best_us"] == pytest.approx(4.0)
    assert told["ended"] == {"ok": 3, "no build": 1, "wrong": 1}
    assert told["errors"] == ["no such loop", "off by 1"]
    assert told["predicted_and_measured_us"][0] == pytest.approx([8.0, 4.0])
    assert told["conditions"]["clock_mhz"] == 1980


@pytest.mark.tvm
def test_kernels_are_drawn_built_checked_and_timed(tmp_path: Path) -> None:
    """On the device that every machine has."""
    target = resolve_target('{"kind":"llvm","num-cores":1}')
    side = ours.Side(SMALL, target)
    with ours.builders() as pool, ours.runner_of(target, tmp_path) as runner:
        for generation in range(2):
            begun = ours.start(pool, [side], 2, generation)
            ours.measure(runner, begun, time.monotonic() + 120)
    assert side.ended["ok"] + side.ended["censored"] == 4, side.to_json()
    assert side.best is not None
    assert ours.shapes(side) == [
        ([96, 64], "float32"),
        ([64, 80], "float32"),
        ([96, 80], "float32"),
    ]


@pytest.mark.tvm
def test_without_a_device_each_row_and_the_file_say_that_times_are_a_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if cuda.present():
        pytest.skip("this machine has a device")
    asked = ["gpu", "--only", "gelu", "--samples", "1", "--generations", "1"]
    monkeypatch.setattr(sys, "argv", [*asked, "--out", str(tmp_path / "result.json")])
    assert gpu.main() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["result-emulated.json"]
    known = json.loads((tmp_path / "result-emulated.json").read_text())
    assert {row["device"] for row in known["rows"].values()} == {"emulated sm_90"}
    assert "emulated, by a model" in capsys.readouterr().out
