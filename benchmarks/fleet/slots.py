"""Whether measurement slots stay busy with a backlog, while some builds are slow.

A simulated fleet: 16 slots of 300 ms, builders enough for them on average, of whose builds one in
ten takes ten seconds. Busy is what the run itself says of its slots in the time in which there is a
backlog: from when it has a record for each of them until its budget is given out. The same of the
whole run includes its beginning, when nothing is built yet, and its end, when slots wait for the
last slow builds. A third figure, for comparison, comes from the clock alone: the rate of records in
the middle of the run over what as many slots could do.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.command import workplace
from tuner.utilisation import BUILDER, BUSY, RUNNER, Idle, shares
from tuner.view.progress import Snapshot

_SLOTS, _BUILDERS = 16, 96
_RUN_S, _BUILD_S, _SLOW_S, _SLOW_SHARE = 0.3, 0.2, 10.0, 0.1
_LEAST_BUSY = 0.95


def flags(parser: argparse.ArgumentParser) -> None:
    """Of the command line."""
    parser.add_argument("--trials", type=int, default=3000)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run and read the utilisation."""
    from benchmarks.fleet.simulated import run_simulated
    from cluster.ray_workers.ray_cluster import ray_cluster
    from cluster.ray_workers.simulated import Pace

    with workplace(None) as folder, ray_cluster("local"):
        pace = Pace(_RUN_S, _BUILD_S, _SLOW_SHARE, _SLOW_S)
        went = run_simulated(pace, folder / "run", options.trials, slots=_SLOTS, builders=_BUILDERS)
    backlog = with_backlog(went.snapshots, _SLOTS)
    whole = shares(went.snapshots[-1].utilisation.get(RUNNER, {}))
    busy = backlog.get(BUSY, 0.0)
    return {
        "slots": _SLOTS,
        "builders": _BUILDERS,
        "trials": went.records,
        "trials_per_s": went.rate(),
        "busy_with_backlog": busy,
        "busy_whole_run": whole.get(BUSY, 0.0),
        "busy_by_rate": went.rate() * _RUN_S / _SLOTS,
        "with_backlog": backlog,
        "whole_run": whole,
        "passed": busy >= _LEAST_BUSY,
    }


def with_backlog(snapshots: Sequence[Snapshot], slots: int) -> Mapping[str, float]:
    """What the time of runners went into while there was a backlog, in parts; empty without one."""
    times = [
        snapshot.utilisation.get(RUNNER, {})
        for snapshot in snapshots
        if snapshot.trials >= slots
        and not snapshot.utilisation.get(BUILDER, {}).get(Idle.DRAINING, 0.0)
    ]
    if len(times) < 2:
        return {}
    first, last = times[0], times[-1]
    return shares({category: s - first.get(category, 0.0) for category, s in last.items()})
