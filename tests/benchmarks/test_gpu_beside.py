"""What a device is asked beside our kernels, by processes that play the vendor's and ours."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.gpu import beside, ours
from benchmarks.gpu.follow import follow
from benchmarks.gpu.report import Report
from benchmarks.gpu.workloads import Workload
from spaces.targets.target import resolve_target
from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Status

LLVM = '{"kind":"llvm","num-cores":1}'
PRODUCT = Workload("product", "product", (8, 4, 2))
OPEN = Workload("open rows", "product", (4, 2), rows=(3, 9))
SANITIZER = """#!/bin/sh
echo "========= COMPUTE-SANITIZER $2"
shift 2
"$@"
echo "========= ERROR SUMMARY: 0 errors"
"""


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return Report(tmp_path / "report.json", {"device": "made", "date": "2026-11-26"})


def saved(tmp_path: Path) -> Any:
    """What a reader of the file finds."""
    return json.loads((tmp_path / "report.json").read_text())


def play(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Have a script in the place of each module that is run."""
    monkeypatch.setattr(beside, "_module", lambda name: [sys.executable, "-c", script, name])


def side_of(workload: Workload, *spaces: str, target: str = LLVM) -> ours.Side:
    """A side whose kernels, all alike, are of these spaces, the fastest first."""
    side = ours.Side(workload, target)
    for number, space in enumerate(spaces):
        candidate = Candidate(CandidateKind.TRACE, "[]", space)
        sample = ours.Sample(workload.name, candidate, f"kernel {number}".encode())
        side.add(sample, Measurement(Status.OK, (1e-6 * (1 + number),) * 3))
    return side


# ---- a process and its lines


def test_lines_come_in_order_and_whole_however_they_are_written() -> None:
    script = "import os; [os.write(1, w) for w in (b'on', b'e\\ntwo\\n', b'last')]"
    lines: list[str] = []
    assert follow([sys.executable, "-c", script], limit_s=60, note=lines.append) == ""
    assert lines == ["one", "two", "last"]


def test_at_its_limit_a_process_is_killed_with_its_children_and_its_lines_are_kept() -> None:
    lines: list[str] = []
    said = follow(["sh", "-c", "sleep 60 & echo $!; wait"], limit_s=1, note=lines.append)
    assert said == "not done after 1 s"
    for _ in range(600):
        if not is_running(int(lines[0])):
            return
        time.sleep(0.05)
    pytest.fail("its child still runs")


def is_running(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def test_one_that_fails_is_told_with_its_last_words() -> None:
    said = follow([sys.executable, "-c", "raise ValueError('no device')"], limit_s=60, note=print)
    assert said == "exit code 1: ValueError: no device"


# ---- the vendor's libraries


def test_rows_of_the_other_side_are_kept_though_it_fails_later(
    monkeypatch: pytest.MonkeyPatch, report: Report, tmp_path: Path
) -> None:
    play(
        monkeypatch,
        "import json, sys\n"
        "print('cuDNN says hello')\n"
        "print(json.dumps({'workload': sys.argv[2], 'triton_us': 2.5, 'asked': sys.argv[1:]}))\n"
        "sys.exit('out of memory')",
    )
    beside.time_torch(report, [PRODUCT, OPEN], triton=True, limit_s=60)
    row = saved(tmp_path)["rows"]["product"]["triton"]
    assert row == {"triton_us": 2.5, "asked": ["torch_side", "product", "open rows", "--triton"]}
    assert saved(tmp_path)["missing"] == {"triton": "exit code 1: out of memory"}


def test_rows_of_the_other_side_are_kept_though_it_never_ends(
    monkeypatch: pytest.MonkeyPatch, report: Report, tmp_path: Path
) -> None:
    said = """echo '{"workload": "product", "torch_us": 2.5}'; sleep 60"""
    monkeypatch.setattr(beside, "_module", lambda name: ["sh", "-c", said, name])
    beside.time_torch(report, [PRODUCT, OPEN], triton=False, limit_s=1)
    assert saved(tmp_path)["rows"] == {"product": {"torch": {"torch_us": 2.5}}}
    assert saved(tmp_path)["missing"] == {"torch": "not done after 1 s"}


def test_a_program_whose_best_fail_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch, report: Report, tmp_path: Path
) -> None:
    play(
        monkeypatch,
        "import sys\n"
        f"if sys.argv[2] != {beside.BEST[0]!r}: sys.exit('illegal instruction')\n"
        "print('{\"best_us\": 2.5}')",
    )
    beside.time_best(report, limit_s=60)
    assert saved(tmp_path)["best"] == [{"best_us": 2.5}]
    failed = {f"best {name}" for name in beside.BEST[1:]}
    assert saved(tmp_path)["missing"] == dict.fromkeys(failed, "exit code 1: illegal instruction")


# ---- compute-sanitizer


@pytest.fixture
def sanitizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "compute-sanitizer"
    program.parent.mkdir()
    program.write_text(SANITIZER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.tvm
@pytest.mark.usefixtures("sanitizer")
def test_a_kernel_of_each_space_is_watched_those_for_open_sizes_too(
    monkeypatch: pytest.MonkeyPatch, report: Report, tmp_path: Path
) -> None:
    play(
        monkeypatch,
        "import json, pathlib, sys\n"
        "for path in sorted(pathlib.Path(sys.argv[2]).glob('*.json')):\n"
        "    artifact = path.with_suffix('.artifact').read_text()\n"
        "    print('========= ' + artifact, json.loads(path.read_text())['arguments'][0])\n"
        "    print('ran', path.stem)",
    )
    sides = [side_of(PRODUCT, "rules", "template", "rules"), side_of(OPEN, "template")]
    beside.sanitize(report, sides, tmp_path, tool="memcheck", limit_s=60)
    names = ["product-rules", "product-template", "open-rows-template"]
    found = saved(tmp_path)["sanitizer"]["memcheck"]
    assert found["asked"] == names
    assert found["ran"] == sorted(names)
    assert found["said"] == [
        "COMPUTE-SANITIZER memcheck",
        "kernel 0 [[3, 2], 'float32']",
        "kernel 0 [[8, 2], 'float32']",
        "kernel 1 [[8, 2], 'float32']",
        "ERROR SUMMARY: 0 errors",
    ]


@pytest.mark.tvm
@pytest.mark.usefixtures("sanitizer")
def test_what_was_watched_before_the_limit_is_kept_and_many_complaints_are_not(
    monkeypatch: pytest.MonkeyPatch, report: Report, tmp_path: Path
) -> None:
    said = "echo ran product-rules; seq -f '========= Invalid read %g' 0 19; sleep 60"
    monkeypatch.setattr(beside, "_module", lambda name: ["sh", "-c", said, name])
    beside.sanitize(report, [side_of(PRODUCT, "rules")], tmp_path, tool="racecheck", limit_s=1)
    found = saved(tmp_path)["sanitizer"]["racecheck"]
    assert found["ran"] == ["product-rules"]
    assert found["said"][:2] == ["COMPUTE-SANITIZER racecheck", "Invalid read 0"]
    assert found["said"][4:6] == ["(13 lines)", "Invalid read 16"]
    assert saved(tmp_path)["missing"] == {"sanitizer racecheck": "not done after 1 s"}


@pytest.mark.tvm
@pytest.mark.usefixtures("sanitizer")
def test_the_watched_program_runs_kernels_of_known_and_of_open_sizes(
    report: Report, tmp_path: Path
) -> None:
    """On the device that every machine has, whose space for open sizes has a template too."""
    target = resolve_target(LLVM)
    sides = [ours.Side(workload, target) for workload in (PRODUCT, OPEN)]
    for side in sides:
        sample = ours.draw(side.workload, target, 0, None)
        side.add(sample, Measurement(Status.OK, (1e-6,) * 3))
    beside.sanitize(report, sides, tmp_path, tool="memcheck", limit_s=120)
    found = saved(tmp_path)["sanitizer"]["memcheck"]
    assert len(found["asked"]) == 2
    assert found["ran"] == sorted(found["asked"])
    assert "missing" not in saved(tmp_path)


def test_a_machine_without_the_sanitizer_says_so(
    monkeypatch: pytest.MonkeyPatch, report: Report, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    beside.sanitize(report, [side_of(PRODUCT, "rules")], tmp_path, tool="memcheck", limit_s=60)
    assert saved(tmp_path)["missing"] == {"sanitizer": "compute-sanitizer is not on PATH"}


# ---- the tests for a device

TESTS = f"""
import pytest
pytestmark = pytest.mark.{"gpu"}

@pytest.mark.parametrize("size", [1, 2, "a b"])
def test_runs(size): assert size != 2

def test_is_left_out(): pytest.skip("no such device")
"""


def test_tests_for_a_device_are_counted_and_those_that_fail_are_named(
    report: Report, tmp_path: Path
) -> None:
    (tmp_path / "test_one.py").write_text(TESTS)
    (tmp_path / "test_other.py").write_text("raise AssertionError('not for a device')")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu\n")
    beside.run_tests(report, limit_s=60, tests=tmp_path)
    found = saved(tmp_path)
    (failed,) = found["tests"].pop("failed")
    assert failed.endswith("test_one.py::test_runs[2]")
    assert found["tests"] == {"passed": 2, "skipped": 1}
    assert "missing" not in found


def test_where_pytest_does_not_begin_its_last_words_are_told(
    report: Report, tmp_path: Path
) -> None:
    (tmp_path / "test_one.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    beside.run_tests(report, limit_s=60, tests=tmp_path)
    said = saved(tmp_path)["missing"]["tests"]
    assert said.startswith("exit code 1: not a word; ")
    assert "1 error" in said


def test_tests_that_cannot_begin_are_missing_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, report: Report, tmp_path: Path
) -> None:
    (tmp_path / "test_one.py").write_text(TESTS)
    monkeypatch.setattr(beside, "_NEEDED", ("pytest", "no_such_package"))
    beside.run_tests(report, limit_s=60, tests=tmp_path)
    assert saved(tmp_path)["missing"] == {"tests": "left out: no_such_package is missing"}
