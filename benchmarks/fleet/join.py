"""How soon a machine that joins gets work, and how soon a lost one's work is given to another.

A real tuning of a small GEMM on one measuring node. A node joins: the clock starts when Ray has it
(`from_start` counts from when its Ray was started) and stops when its runner has its first lease.
Then the first node is lost with all its processes: the clock stops when what
its runner held is in the queue again. In turns, on one run.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.command import say, workplace
from benchmarks.fleet.guard import kill
from benchmarks.fleet.local import driver, local_fleet, tune_gemm
from tuner.errors import TunerError
from tuner.runs.folder import RunFolder

NODE = {"CPU": 1, "measure": 1}
_MOST_S = 10.0
_WAIT_S = 120.0
_ENDLESS = 100_000
_LINE = re.compile(r"^(\S+ \S+) cluster\.ray_pool \w+ (runner-\d+) (first lease|lost)", re.M)


def flags(parser: argparse.ArgumentParser) -> None:
    """Of the command line."""
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--run", type=Path, help="folder for the run, which stays; it must be new")
    parser.add_argument("--size", type=int, default=96, help="of the GEMM")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Let nodes join and leave."""
    joins, starts, leaves = [], [], []
    with workplace(options.run) as folder, local_fleet({"CPU": 1}) as fleet:
        run = folder / "run"
        command = tune_gemm(options.size, run, trials=_ENDLESS)
        old = fleet.add(NODE)
        search = driver(fleet.address, command, out=folder / "log")
        try:
            _wait(lambda: "first lease" in _kinds(run), search, folder / "log")
            for _ in range(options.rounds):
                seen = len(_events(run))
                started_s = time.time()
                new = fleet.add(NODE)
                joined_s = time.time()
                leased_s = _next(run, seen, "first lease", search, folder / "log")
                joins.append(leased_s - joined_s)
                starts.append(leased_s - started_s)
                seen = len(_events(run))
                left_s = time.time()
                fleet.lose(old)
                leaves.append(_next(run, seen, "lost", search, folder / "log") - left_s)
                old = new
                say(f"join {joins[-1]:.1f} s, leave {leaves[-1]:.1f} s")
        finally:
            kill([search])
    return {
        "join_s": joins,
        "join_from_start_s": starts,
        "leave_s": leaves,
        "join_median_s": statistics.median(joins),
        "leave_median_s": statistics.median(leaves),
        "passed": max(joins) <= _MOST_S and max(leaves) <= _MOST_S,
    }


def _events(run: Path) -> list[tuple[float, str]]:
    """What the log says of runners: seconds since the epoch, and what it was."""
    log = RunFolder(run).log
    text = log.read_text(errors="replace") if log.exists() else ""
    return [(_seconds(stamp), what) for stamp, _, what in _LINE.findall(text)]


def _kinds(run: Path) -> set[str]:
    return {what for _, what in _events(run)}


def _seconds(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC).timestamp()


def _next(run: Path, seen: int, wanted: str, search: psutil.Popen, log: Path) -> float:
    """When the next event of a kind was."""

    def later() -> list[float]:
        return [at_s for at_s, what in _events(run)[seen:] if what == wanted]

    _wait(lambda: bool(later()), search, log)
    return later()[0]


def _wait(done: Callable[[], bool], search: psutil.Popen, log: Path) -> None:
    until_s = time.monotonic() + _WAIT_S
    while not done():
        if search.poll() is not None or time.monotonic() > until_s:
            said = log.read_text(errors="replace").strip()[-300:]
            raise TunerError(f"it did not come to that within {_WAIT_S:g} s: {said}")
        time.sleep(0.1)
