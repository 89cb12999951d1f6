"""Whether Ray's autoscaler gets a run the machines it is worth, and takes them back.

One measuring machine is always there, three may be. A real tuning of a small GEMM whose budget is
worth three runners: the cluster must grow to three machines while it runs, all of them must
measure, and it must be back at one when the run is over.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from benchmarks.command import say, workplace
from benchmarks.fleet.autoscaled import autoscaled
from benchmarks.fleet.local import ALONE, driver, kill, tune_gemm
from tuner.run_folder import RunFolder
from tuner.sqlite_store import SqliteStore

_WORKER = {"CPU": 2, "measure": 1}
_MOST, _IDLE_S = 3, 6.0
_END_S, _SHRINK_S = 400.0, 90.0


def flags(parser: argparse.ArgumentParser) -> None:
    """Of the command line."""
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--size", type=int, default=96, help="of the GEMM")
    parser.add_argument("--run", type=Path, help="folder for the run, which stays; it must be new")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Tune, and look at the machines meanwhile."""
    os.environ.update(ALONE)  # which Ray reads when it is imported
    import ray

    with (
        workplace(options.run) as folder,
        autoscaled({"CPU": 1}, _WORKER, least=1, most=_MOST, idle_s=_IDLE_S) as address,
    ):
        run = folder / "run"
        ray.init(address, log_to_driver=False)
        started_s = time.monotonic()
        search = driver(
            address, tune_gemm(options.size, run, trials=options.trials), out=folder / "log"
        )
        try:
            timeline = _watch(search, started_s)
            code = search.poll()
            back = _shrunk(timeline, started_s)
        finally:
            kill([search])
            ray.shutdown()
        said = (folder / "log").read_text(errors="replace").strip()[-300:]
        workers = _workers(run) if code == 0 else Counter[str]()
    machines = [count for _, count in timeline]
    return {
        "failure": "" if code == 0 else f"code {code}: {said}",
        "timeline": timeline,
        "most_machines": max(machines),
        "machines_after": machines[-1],
        "trials_by_worker": dict(workers),
        "passed": code == 0 and back and max(machines) == _MOST and len(workers) >= _MOST,
    }


def _watch(search: psutil.Popen, started_s: float) -> list[tuple[float, int]]:
    """Machines besides the head over time, while a driver runs."""
    timeline = [(0.0, _machines())]
    while search.poll() is None and time.monotonic() - started_s < _END_S:
        _note(timeline, started_s)
        time.sleep(0.5)
    return timeline


def _shrunk(timeline: list[tuple[float, int]], started_s: float) -> bool:
    until_s = time.monotonic() + _SHRINK_S
    while time.monotonic() < until_s:
        _note(timeline, started_s)
        if timeline[-1][1] <= 1:
            return True
        time.sleep(0.5)
    return False


def _note(timeline: list[tuple[float, int]], started_s: float) -> None:
    machines = _machines()
    if machines != timeline[-1][1]:
        timeline.append((round(time.monotonic() - started_s, 1), machines))
        say(f"{timeline[-1][0]:.0f} s: {machines} machines")


def _machines() -> int:
    import ray

    return sum("measure" in n["Resources"] for n in ray.nodes() if n["Alive"])


def _workers(run: Path) -> Counter[str]:
    with closing(SqliteStore(RunFolder(run).store, read_only=True)) as store:
        return Counter(r.provenance.worker for r in store.scan() if r.trial.rung == 0)
