"""Our kernels on this machine's GPU beside the vendor's libraries and Triton, and what to believe.

    python -m benchmarks.gpu --out benchmarks/results/gpu/h100.json
    python -m benchmarks.gpu --only softmax --only 'f16 2048' --time-budget 2m
    python -m benchmarks.gpu --json --no-triton --no-sanitizer

Needs torch, not Ray. Each workload's kernels are a short evolution of the product's own space,
built on all cores, checked and timed by the product's own runner. Times are of CUDA graphs on both
sides.
The file is written again whenever more is known, so a run that is cut off has told most. A machine
without a GPU runs small programs on the emulated device, whose times are a model's: the file's name
and each row say so.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu import ours
from benchmarks.gpu.workloads import ON_A_DEVICE, ON_THE_EMULATED_DEVICE, Workload
from cluster.console.parse import duration_s
from tuner.errors import TunerError
from tuner.files.atomic import write_bytes

_EMULATED = '{"kind":"cuda","arch":"sm_90"}'
_SANITIZER_LIMIT_S = 90.0
_HOPPER_SIZES = (1000, 4096)
_TOOLS = ("memcheck", "racecheck")


class Report:
    """What is known so far, on disk after each change."""

    def __init__(self, out: Path | None, machine: dict[str, Any]) -> None:
        self._out, self._started_s = out, time.monotonic()
        self.known: dict[str, Any] = {"machine": machine, "rows": {}}

    def add(self, workload: str, **facts: Any) -> None:
        """Add facts of a workload."""
        self.known["rows"].setdefault(workload, {}).update(facts)
        self.save()

    def save(self) -> None:
        """Write the file."""
        self.known["seconds"] = round(time.monotonic() - self._started_s, 1)
        if self._out is not None:
            write_bytes(self._out, (json.dumps(self.known, indent=1) + "\n").encode())


def main() -> int:
    """Run the command line."""
    from spaces.ir.lean_tvm import import_tvm_lean

    options = _flags().parse_args()
    import_tvm_lean()
    from spaces.targets.target import emulated_target

    try:
        target = find_target(options.target)
    except TunerError as error:
        print(f"{error}\nSmall programs run on the emulated device.", file=sys.stderr)
        target = emulated_target(_EMULATED)
        options.emulated, options.out = True, options.out and mark_emulated(options.out)
    known = ON_THE_EMULATED_DEVICE if options.emulated else ON_A_DEVICE
    chosen = [w for w in known if _is_asked(w, options.only)]
    if not chosen:
        print(f"no workload is called {options.only}", file=sys.stderr)
        return 2
    report = Report(options.out, about(target))
    until_s = time.monotonic() + options.time_budget
    with tempfile.TemporaryDirectory(prefix="gpu-") as folder:
        compare(chosen, target, Path(folder), report, options, until_s)
    if options.json:
        print(json.dumps(report.known, indent=1))
    return 0


def find_target(text: str) -> str:
    """The target that is named.

    Raises:
        TunerError: the machine has no such device.
    """
    from spaces.targets.target import device_of, resolve_target

    target = resolve_target(text)
    device_of(target)
    return target


def about(target: str) -> dict[str, Any]:
    """What there is to say of the machine."""
    from spaces.passes.toolchain import toolchain_fingerprint
    from spaces.targets.target import device_fingerprint

    return {
        "device": device_fingerprint(target),
        "toolchain": toolchain_fingerprint(target),
        "target": json.loads(target),
        "date": time.strftime("%Y-%m-%d"),
    }


def mark_emulated(out: Path) -> Path:
    """The file for times of a model, which nobody should take for a device's."""
    return out if "emulated" in out.stem else out.with_stem(f"{out.stem}-emulated")


def compare(
    chosen: list[Workload],
    target: str,
    folder: Path,
    report: Report,
    options: argparse.Namespace,
    until_s: float,
) -> None:
    """Time both sides, and check some of our kernels with the vendor's own tool."""
    sides = [ours.Side(workload, target) for workload in chosen]
    machine = report.known["machine"]["device"]
    with ours.builders() as pool, ours.runner_of(target, folder) as runner:
        begun = ours.start(pool, sides, options.samples, 0)
        if not options.emulated:
            time_torch(
                chosen, report, triton=False, until_s=until_s
            )  # nothing else uses the device
        if not options.emulated and not options.only:
            report.known["hopper"] = time_hopper(until_s)
        for generation in range(options.generations):
            if generation:
                begun = ours.start(pool, sides, options.samples, generation)
            ours.measure(runner, begun, until_s)
            for side in sides:
                report.add(side.workload.name, device=machine, ours=side.to_json())
            print(f"generation {generation}, {until_s - time.monotonic():.0f} s left", flush=True)
        for side in sides:
            if side.workload.rows and time.monotonic() < until_s:
                ours.time_rows(runner, side)
                report.add(side.workload.name, ours=side.to_json())
    tell(report)
    if options.emulated:
        return
    if options.sanitizer and time.monotonic() < until_s:
        report.known["sanitizer"] = sanitize(sides, folder, until_s)
        report.save()
    if options.triton and time.monotonic() < until_s:
        time_torch(chosen, report, triton=True, until_s=until_s)
    tell(report)


def time_torch(chosen: list[Workload], report: Report, *, triton: bool, until_s: float) -> None:
    """Time the other side in a process of its own, and note its lines as they come."""
    command = [sys.executable, "-m", "benchmarks.gpu.torch_side", *(w.name for w in chosen)]
    command += ["--triton"] if triton else []
    limit_s = max(1.0, until_s - time.monotonic())
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as child:
        assert child.stdout is not None
        timer = _kill_after(child, limit_s)
        for line in child.stdout:
            facts = json.loads(line)
            report.add(facts.pop("workload"), **{"triton" if triton else "torch": facts})
        timer.cancel()


def time_hopper(until_s: float) -> list[Any]:
    """What `benchmarks.gpu.hopper` says of its product in a process of its own; where it fails, its
    last words."""
    said: list[Any] = []
    for size in _HOPPER_SIZES:
        limit_s = max(1.0, until_s - time.monotonic())
        command = [sys.executable, "-m", "benchmarks.gpu.hopper", str(size)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            said.append(f"{size}: no answer within {limit_s:.0f} s")
            continue
        lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
        last = lines[-1] if lines else "no output"
        said.append(json.loads(last) if done.returncode == 0 else last)
    return said


def sanitize(sides: list[ours.Side], folder: Path, until_s: float) -> dict[str, Any]:
    """What compute-sanitizer says of the best kernel of each workload."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        return {"missing": "compute-sanitizer is not on PATH"}
    place = folder / "sanitized"
    place.mkdir()
    for number, side in enumerate(sides):
        if side.best is None or side.workload.rows:
            continue
        shapes = ours.shapes(side)
        (place / f"{number:02}.artifact").write_bytes(side.best[0].artifact)
        (place / f"{number:02}.json").write_text(json.dumps(shapes))
    said: dict[str, Any] = {}
    for tool in _TOOLS:
        command = [program, "--tool", tool, sys.executable, "-m", "benchmarks.gpu.sanitized"]
        limit_s = min(_SANITIZER_LIMIT_S, max(1.0, until_s - time.monotonic()))
        try:
            done = subprocess.run(
                [*command, str(place)], capture_output=True, text=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            said[tool] = f"no answer within {limit_s:.0f} s"
            continue
        lines = done.stdout.splitlines()
        said[tool] = {
            "ran": sum(line.startswith("ran ") for line in lines),
            "said": [line for line in lines if line.startswith("=========")][-4:],
        }
    return said


def tell(report: Report) -> None:
    """Print a line for each workload."""
    print(f"hopper: {report.known.get('hopper')}, sanitizer: {report.known.get('sanitizer')}")
    for name, row in report.known["rows"].items():
        mine, torch, triton = (row.get(side, {}) for side in ("ours", "torch", "triton"))
        best_us, torch_us = mine.get("best_us"), torch.get("torch_us")
        share = f"{torch_us / best_us:.2f} of torch's speed" if best_us and torch_us else ""
        said = [f"ours {_us(best_us)}", f"torch {_us(torch_us)}"]
        said += [f"triton {_us(triton.get('triton_us'))}", share, str(mine.get("ended", ""))]
        where = "emulated, by a model: " if "emulated" in row.get("device", "") else ""
        print(f"{name:32} {where}" + ", ".join(said), flush=True)
        if by_rows := mine.get("by_rows_us"):
            theirs = torch.get("torch_by_rows_us") or "-"
            print(f"{'':32} us by rows: {by_rows}, torch {theirs}", flush=True)


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} us"


def _is_asked(workload: Workload, only: list[str]) -> bool:
    return not only or any(word in workload.name for word in only)


def _kill_after(child: subprocess.Popen[str], limit_s: float) -> Any:
    import threading

    timer = threading.Timer(limit_s, child.kill)
    timer.start()
    return timer


def _flags() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    flags.add_argument("--only", action="append", default=[], help="part of a workload's name")
    flags.add_argument("--time-budget", type=duration_s, default=480.0, help="such as 8m")
    flags.add_argument("--samples", type=int, default=16, help="kernels of a generation, for each")
    flags.add_argument("--generations", type=int, default=3)
    flags.add_argument("--target", default="cuda", help="a CUDA target; its device must be here")
    flags.add_argument("--no-triton", dest="triton", action="store_false")
    flags.add_argument("--no-sanitizer", dest="sanitizer", action="store_false")
    flags.add_argument("--json", action="store_true", help="print all that is known as JSON")
    flags.add_argument("--out", type=Path, help="file that is written as results come")
    flags.set_defaults(emulated=False)
    return flags


if __name__ == "__main__":
    sys.exit(main())
