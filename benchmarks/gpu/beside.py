"""What is asked beside our kernels, each in a process of its own with a limit: the vendor's
libraries and Triton, the best predicted settings, compute-sanitizer, the tests for a device.

What a process that is killed, or fails, has said by then stays in the report, with the reason.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu import ours
from benchmarks.gpu.follow import follow
from benchmarks.gpu.report import Report
from benchmarks.gpu.workloads import Workload

BEST = (
    "product f16 4096",
    "product f32 2048",
    "decode f16 1x4096x4096",
    "decode int4 1x4096x4096",
    "attention f16 32x2048x128",
    "softmax 4096x4096",
)
"""Programs whose best predicted settings are measured."""
_ROOT = Path(__file__).resolve().parents[2]
_SANITIZERS = "========="
_KEPT_LINES = 4
_TESTED = re.compile(r"^(\S+::.+?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")
_SOME_FAILED = "exit code 1:"
_NEEDED = ("pytest", "pytest_timeout")
"""What pyproject.toml's settings of pytest ask for."""


def time_torch(report: Report, chosen: Sequence[Workload], *, triton: bool, limit_s: float) -> None:
    """Time the other side, and note its lines as they come."""
    side = "triton" if triton else "torch"
    command = [*_module("torch_side"), *(w.name for w in chosen), *(["--triton"] if triton else [])]

    def note(line: str) -> None:
        if line.startswith("{"):  # libraries have their say as well
            facts = json.loads(line)
            report.add(facts.pop("workload"), **{side: facts})

    report.miss(side, follow(command, limit_s=limit_s, note=note))


def time_best(report: Report, *, limit_s: float) -> None:
    """Note what `benchmarks.gpu.best` says of some programs, each in a process of its own."""
    for name in BEST:
        lines: list[str] = []
        failure = follow([*_module("best"), name], limit_s=limit_s, note=lines.append)
        if failure or not lines:
            report.miss(f"best {name}", failure or "not a word")
        else:
            report.note(best=[*report.known.get("best", []), json.loads(lines[-1])])


def sanitize(
    report: Report, sides: Sequence[ours.Side], folder: Path, *, tool: str, limit_s: float
) -> None:
    """Note what a tool of compute-sanitizer says of a kernel of each workload's each space."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        report.miss("sanitizer", "compute-sanitizer is not on PATH")
        return
    place = folder / tool
    place.mkdir()
    asked = [ours.lay_out(side, sample, place) for side in sides for sample in side.each_space()]
    if not asked:
        report.miss(f"sanitizer {tool}", "no kernel was right")
        return
    found: dict[str, Any] = {"asked": asked, "ran": [], "said": []}

    def save() -> None:
        report.note(sanitizer={**report.known.get("sanitizer", {}), tool: _shortened(found)})

    def note(line: str) -> None:
        if line.startswith("ran "):
            found["ran"].append(line.removeprefix("ran "))
            save()
        elif line.startswith(_SANITIZERS):
            found["said"].append(line.removeprefix(_SANITIZERS).strip())

    command = [program, "--tool", tool, *_module("sanitized"), str(place)]
    failure = follow(command, limit_s=limit_s, note=note)
    save()
    report.miss(f"sanitizer {tool}", failure)


def run_tests(report: Report, *, limit_s: float, tests: Path = _ROOT / "tests") -> None:
    """Run the tests that need a device, and note each as it ends."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    files = sorted(str(f) for f in tests.rglob("test_*.py") if "mark.gpu" in f.read_text())
    if missing or not files:
        why = f"{' and '.join(missing)} is missing" if missing else f"{tests} has none"
        report.miss("tests", f"left out: {why}")
        return
    found: dict[str, Any] = {"passed": 0, "skipped": 0, "failed": []}
    last = ""

    def note(line: str) -> None:
        nonlocal last
        last = line.strip() or last
        if ended := _TESTED.match(line):
            if ended[2] in ("FAILED", "ERROR"):
                found["failed"].append(ended[1])
            else:
                found["skipped" if ended[2] == "SKIPPED" else "passed"] += 1
            report.note(tests=found)

    settings = ["-vv", "-m", "gpu", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    command = [sys.executable, "-m", "pytest", *settings, *files]
    failure = follow(command, limit_s=limit_s, note=note)
    if failure and not (found["failed"] and failure.startswith(_SOME_FAILED)):  # that was said
        report.miss("tests", f"{failure}; {last}")


def _module(name: str) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.gpu.{name}"]


def _shortened(found: dict[str, Any]) -> dict[str, Any]:
    """With the first complaints and the sums at the end."""
    lines = found["said"]
    dropped = lines[_KEPT_LINES:-_KEPT_LINES]
    if dropped:
        lines = [*lines[:_KEPT_LINES], f"({len(dropped)} lines)", *lines[-_KEPT_LINES:]]
    return {**found, "said": lines}
