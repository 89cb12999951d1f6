"""The comparison on a device: what it says, and that a run which is cut off has told most."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import beside, metaschedule, ours, report
from benchmarks.gpu.compare import Plan, steps_beside
from benchmarks.gpu.report import Report, file_for
from benchmarks.gpu.workloads import ON_A_DEVICE, ON_THE_EMULATED_DEVICE, Workload
from spaces.ir.cuda_runtime import package_folders
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
    written = Report(out, {"device": "none"})
    written.add("a", torch={"torch_us": 2.0})
    written.add("a", ours={"best_us": 4.0})
    assert json.loads(out.read_text())["rows"]["a"].keys() == {"torch", "ours"}


def test_the_file_is_named_by_the_device_and_the_date_and_replaces_none(tmp_path: Path) -> None:
    real = "cuda NVIDIA H100 80GB HBM3 cc=9.0 driver=580.159.04 power=700W"
    machine = {"device": real, "date": "2026-11-26"}
    assert file_for(machine, tmp_path).name == "nvidia-h100-80gb-hbm3-2026-11-26.json"
    Report(file_for(machine, tmp_path), machine).note(tests={})
    assert file_for(machine, tmp_path).name == "nvidia-h100-80gb-hbm3-2026-11-26-2.json"
    emulated = {"device": "emulated sm_90", "date": "2026-11-26"}
    assert file_for(emulated, tmp_path).name == "emulated-sm-90-2026-11-26.json"


def test_what_tells_most_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within two minutes of a run that is cut off: all of the vendor's times, before any kernel of
    ours is built; then whether ours keep to their memory, Triton once, and the tests."""
    order: list[str] = []

    def time_torch(_: Report, chosen: list[Workload], *, triton: bool, limit_s: float) -> None:
        order.append(" ".join(["triton" if triton else "torch", *(w.name for w in chosen)]))

    def sanitize(*_: object, tool: str, limit_s: float) -> None:
        order.append(tool)

    monkeypatch.setattr(beside, "time_torch", time_torch)
    monkeypatch.setattr(beside, "sanitize", sanitize)
    monkeypatch.setattr(beside, "run_tests", lambda *_, limit_s: order.append("tests"))
    monkeypatch.setattr(beside, "time_best", lambda *_, limit_s: order.append("best"))
    half = Workload("half", "product", (8, 4, 2), "float16")
    sides = [ours.Side(workload, CUDA) for workload in (SMALL, half)]
    plan = Plan(CUDA, False, samples=1, generations=1, until_s=time.monotonic() + 1000)
    written = Report(tmp_path / "result.json", {})
    for steps in steps_beside(sides, plan, tmp_path, written):
        order.append("--")
        for step in steps:
            step.take(plan, written)
    assert order == [
        *("--", "torch product half"),
        *("--", "memcheck", "triton half", "tests"),
        *("--", "best", "racecheck"),
        *("--", "triton product"),
    ]
    late = Plan(CUDA, False, 1, 1, until_s=time.monotonic(), whole=False, triton=False)
    for steps in steps_beside(sides, late, tmp_path, written):
        for step in steps:
            step.take(late, written)
    assert len(order) == 11
    assert written.known["missing"].keys() == {"torch", "memcheck", "racecheck"}


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
    assert told["predicted_us"] == pytest.approx(8.0)
    assert told["ranks_predicted"] == pytest.approx(1.0)
    assert told["ended"] == {"ok": 3, "no build": 1, "wrong": 1}
    assert told["errors"] == ["no such loop", "off by 1"]
    assert told["predicted_and_measured_us"][0] == pytest.approx([8.0, 4.0])
    assert told["conditions"]["clock_mhz"] == 1980


@pytest.mark.tvm
def test_kernels_are_drawn_built_checked_and_timed(tmp_path: Path) -> None:
    """On the device that every machine has."""
    target = resolve_target('{"kind":"llvm","num-cores":1}')
    side, told = ours.Side(SMALL, target), []
    with ours.builders() as pool, ours.runner_of(target, tmp_path) as runner:
        for generation in range(2):
            begun = ours.start(pool, [side], 2, generation)
            until_s = time.monotonic() + 120
            ours.measure(runner, begun, until_s, lambda side: told.append(side.ended.total()))
    assert told == [1, 2, 3, 4]
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
    asked = ["gpu", "--only", "product f32", "--samples", "1", "--generations", "1", "--long"]
    monkeypatch.setattr(sys, "argv", asked)
    monkeypatch.setattr(gpu, "file_for", lambda machine: file_for(machine, tmp_path))
    assert gpu.main() == 0
    (written,) = tmp_path.iterdir()
    assert written.name.startswith("emulated-sm-90-")
    known = json.loads(written.read_text())
    (row,) = known["rows"].values()
    assert row["device"] == "emulated sm_90"
    # The template's model predicts, and another one times what the emulated device counts.
    assert row["ours"]["best_us"] / 2 < row["ours"]["predicted_us"] < row["ours"]["best_us"] * 2
    said = {"torch, sanitizer, tests, metaschedule": "left out: the device is emulated"}
    assert known["missing"] == said
    assert "emulated, by a model" in capsys.readouterr().out


def test_a_file_that_is_named_is_marked_as_a_models() -> None:
    assert report.mark_emulated(Path("a/result.json")) == Path("a/result-emulated.json")
    assert report.mark_emulated(Path("emulated.json")) == Path("emulated.json")


def test_small_programs_are_of_each_kind_and_type_of_a_devices() -> None:
    known = {(w.kind, w.dtype) for w in ON_THE_EMULATED_DEVICE}
    assert {(w.kind, w.dtype) for w in ON_A_DEVICE} - known == {("batched", "float16")}
    decode = [w for w in ON_THE_EMULATED_DEVICE if w.kind == "product" and w.sizes[0] == 1]
    assert len(decode) == 1


@pytest.mark.tvm
@pytest.mark.long
def test_metaschedule_tunes_in_a_process_of_its_own_and_our_runner_times_its_best(
    tmp_path: Path,
) -> None:
    """On the device that every machine has."""
    target = resolve_target('{"kind":"llvm","num-cores":1}')
    with ours.builders() as pool, ours.runner_of(target, tmp_path) as runner:
        found = metaschedule.tune(
            ours.Side(SMALL, target), tmp_path, pool, runner, trials=4, limit_s=200.0
        )
        late = metaschedule.tune(
            ours.Side(SMALL, target), tmp_path / "late", pool, runner, trials=4, limit_s=0.1
        )
    assert found["failure"] == ""
    assert found["trials_ok"] >= 1
    assert found["best_us"] > 0
    assert late["failure"].startswith("not done after 0.1 s")
    assert late["error"] == "it left no database"


def test_metaschedule_finds_the_compiler_and_libraries_of_packages(tmp_path: Path) -> None:
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.touch()
    environ = {"CUDA_HOME": str(tmp_path), "PATH": "/usr/bin"}
    said = metaschedule.variables_for_cuda(environ)
    assert said["PATH"] == f"{nvcc.parent}:/usr/bin"
    assert said["LD_LIBRARY_PATH"].split(":") == [*map(str, package_folders())]


def test_metaschedule_is_given_no_open_sizes(tmp_path: Path) -> None:
    side = ours.Side(Workload("open", "product", (4, 2), rows=(3, 9)), CUDA)
    nothing: Any = None
    said = metaschedule.tune(side, tmp_path, nothing, nothing, trials=4, limit_s=1.0)
    assert said == {"failure": "left out: it tunes known sizes"}
