"""How fast a run goes, and what it holds in memory: a GEMM tuned from scratch.

    python -m benchmarks.throughput [--trials 128] [--size 512] [--json]

The run is the real command in a process of its own, on an embedded Ray cluster. Trials per second
count from the first record to the last of the search; memory is the largest resident size (its
proportional share, PSS) of the search process and of any worker with its child, sampled twice a
second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks.machine import about
from tuner.storage.sqlite_store import SqliteStore

EXAMPLE = Path(__file__).parent.parent / "examples" / "gemm.py"
_SAMPLE_S = 0.5


def measure(trials: int, size: int, run: Path) -> dict[str, Any]:
    """Tune, watch, and sum up."""
    command = [sys.executable, "-m", "tuner", "tune", f"{EXAMPLE}:gemm", "--target", "llvm"]
    command += [f"--arg={name}={size}" for name in "mnk"]
    command += ["--trials", str(trials), "--until=0", "--run", str(run), "--json"]
    start_s = time.time()
    peaks: dict[str, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as tuner:
        while tuner.poll() is None:
            _note_peaks(psutil.Process(tuner.pid), peaks)
            time.sleep(_SAMPLE_S)
        report = json.loads(tuner.communicate()[0])
    store = SqliteStore(run / "records.sqlite", read_only=True)
    times = sorted(r.time_s for r in store.scan() if r.trial.rung == 0)
    store.close()
    search_s = times[-1] - times[0]
    (task,) = report["tasks"]
    return {
        "trials": len(times),
        "first_record_s": times[0] - start_s,
        "search_s": search_s,
        "trials_per_s": (len(times) - 1) / search_s,
        "trials_per_s_from_33": (len(times) - 33) / (times[-1] - times[32]),
        "total_s": time.time() - start_s,
        "best_ms": task["best_ms"],
        "gflops": 2 * size**3 / task["best_ms"] / 1e6,
        "peak_pss_mb": {kind: size_b >> 20 for kind, size_b in sorted(peaks.items())},
    }


def _note_peaks(root: psutil.Process, peaks: dict[str, int]) -> None:
    for kind, process in _kinds(root):
        try:
            pss = process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        peaks[kind] = max(peaks.get(kind, 0), pss)


def _kinds(root: psutil.Process) -> Iterator[tuple[str, psutil.Process]]:
    """Processes of a run worth watching, with what they are."""
    yield "driver", root
    try:
        descendants = root.children(recursive=True)
    except psutil.NoSuchProcess:
        return
    for process in descendants:
        try:
            title, command = process.name(), " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        if "SearchHost" in command or "SearchHost" in title:
            yield "search", process
        elif "tuner.process.child_main" in command:
            yield f"child of {_parent_kind(process)}", process


def _parent_kind(process: psutil.Process) -> str:
    try:
        title = " ".join(process.parent().cmdline())
    except (psutil.Error, AttributeError):
        return "worker"
    for name in ("Builder", "Runner", "Space", "SearchHost"):
        if name in title:
            return name.lower()
    return "worker"


def main() -> None:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(description="How fast a run goes, and its memory.")
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(options.trials, options.size, Path(folder) / "run")
    if options.json:
        print(json.dumps({**result, "machine": about()}))
        return
    for name, value in result.items():
        print(f"{name:22} {value:.2f}" if isinstance(value, float) else f"{name:22} {value}")


if __name__ == "__main__":
    main()
