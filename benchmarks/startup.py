"""How long it takes to begin: each kind of worker to be ready, and the command to answer.

    python -m benchmarks.startup [--rounds 5] [--json]

A worker is ready when its child process has imported what it needs and answers calls. Medians
over rounds; every worker is started alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from actors.builder import Builder
from actors.runner import Runner
from actors.space_worker import SpaceWorker
from benchmarks.machine import about


class Worker(Protocol):
    """What all workers have in common."""

    def ready(self) -> None:
        """Wait for the child."""

    def close(self) -> None:
        """End it."""


def measure(rounds: int) -> dict[str, Any]:
    """Seconds, by what starts."""
    from spaces.targets.target import resolve_target

    target = resolve_target("llvm")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        makers: dict[str, Callable[[], Worker]] = {
            "builder": lambda: Builder(log_dir=folder),
            "runner": lambda: Runner(target=target, log_dir=folder, scratch=folder),
            "space_worker": lambda: SpaceWorker(log_dir=folder),
        }
        times: dict[str, list[float]] = {kind: [] for kind in (*makers, "help")}
        for _ in range(rounds):
            for kind, make in makers.items():
                times[kind].append(_ready(make))
            times["help"].append(_help())
    return {
        f"{kind}_s": {
            "median": statistics.median(samples),
            "min": min(samples),
            "max": max(samples),
        }
        for kind, samples in times.items()
    }


def _ready(make: Callable[[], Worker]) -> float:
    start_s = time.perf_counter()
    worker = make()
    worker.ready()
    took_s = time.perf_counter() - start_s
    worker.close()
    return took_s


def _help() -> float:
    start_s = time.perf_counter()
    subprocess.run([sys.executable, "-m", "tuner", "--help"], check=True, capture_output=True)
    return time.perf_counter() - start_s


def main() -> None:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(description="How long it takes to begin.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    result = measure(options.rounds)
    if options.json:
        print(json.dumps({**result, "machine": about()}))
        return
    for name, spread in result.items():
        print(f"{name:15} {spread['median']:.2f}  ({spread['min']:.2f} to {spread['max']:.2f})")


if __name__ == "__main__":
    main()
