"""Whether Ray's autoscaler gets a run the machines it is worth, and takes them back.

One measuring machine is always there, three may be. A real tuning of a GEMM whose budget is worth
three runners: the cluster must grow to three machines while it runs, all of them must measure, some
must have gone before the last trial, since the work left is not worth them any more, and it must be
back at one when the run is over. The GEMM is a large one so that the last trials, which are too few
for three machines, take longer than those are kept in reserve.
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
from benchmarks.fleet.autoscaled import Autoscaling, MachineKind, autoscaled
from benchmarks.fleet.guard import kill
from benchmarks.fleet.local import ALONE, driver, tune_gemm
from cluster.ray_workers.ray_cluster import ray_cluster
from tuner.record import Record
from tuner.runs.folder import RunFolder
from tuner.storage.sqlite_store import SqliteStore

_MOST = 3
_MACHINES = Autoscaling({"worker": MachineKind({"CPU": 2, "measure": 1}, 1, _MOST)}, idle_s=6.0)
_END_S, _SHRINK_S = 400.0, 90.0


def flags(parser: argparse.ArgumentParser) -> None:
    """Of the command line."""
    parser.add_argument("--trials", type=int, default=120)
    parser.add_argument("--size", type=int, default=2560, help="of the GEMM")
    parser.add_argument("--run", type=Path, help="folder for the run, which stays; it must be new")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Tune, and look at the machines meanwhile."""
    os.environ.update(ALONE)
    with (
        workplace(options.run) as folder,
        autoscaled({"CPU": 1}, _MACHINES) as address,
        ray_cluster(address),
    ):
        run = folder / "run"
        started_s, started_wall_s = time.monotonic(), time.time()
        search = driver(
            address, tune_gemm(options.size, run, trials=options.trials), out=folder / "log"
        )
        try:
            timeline = _watch(search, started_s)
            code = search.poll()
            back = _shrunk(timeline, started_s)
        finally:
            kill([search])
        said = (folder / "log").read_text(errors="replace").strip()[-300:]
        records = _records(run) if code == 0 else []
    machines = [count for _, count in timeline]
    workers = Counter(r.provenance.worker for r in records if r.trial.rung == 0)
    last_s = max((r.time_s - started_wall_s for r in records), default=0.0)
    at_last = [count for at_s, count in timeline if at_s <= last_s][-1]
    return {
        "failure": "" if code == 0 else f"code {code}: {said}",
        "timeline": timeline,
        "last_trial_s": round(last_s, 1),
        "most_machines": max(machines),
        "machines_at_last_trial": at_last,
        "machines_after": machines[-1],
        "trials_by_worker": dict(workers),
        "passed": code == 0
        and back
        and max(machines) == _MOST
        and len(workers) >= _MOST
        and at_last < _MOST,
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


def _records(run: Path) -> list[Record]:
    with closing(SqliteStore(RunFolder(run).store, read_only=True)) as store:
        return [*store.scan()]
