"""Whether measurement slots stay busy with a backlog, while some builds are slow.

A simulated fleet: 16 slots of 300 ms, builders enough for them on average, of whose builds one in
ten takes ten seconds. Busy is what the run itself reports, from when the slots were first full.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.command import workplace
from tuner.utilisation import BUSY, RUNNER, shares

_SLOTS, _BUILDERS = 16, 96
_RUN_S, _BUILD_S, _SLOW_S, _SLOW_SHARE = 0.3, 0.2, 10.0, 0.1
_LEAST_BUSY = 0.95


def flags(parser: argparse.ArgumentParser) -> None:
    """Of the command line."""
    parser.add_argument("--trials", type=int, default=3000)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run and read the utilisation."""
    from benchmarks.fleet.simulated import run_simulated
    from cluster.ray_cluster import ray_cluster
    from cluster.simulated import Pace

    with workplace(None) as folder, ray_cluster("local"):
        pace = Pace(_RUN_S, _BUILD_S, _SLOW_SHARE, _SLOW_S)
        went = run_simulated(pace, folder / "run", options.trials, slots=_SLOTS, builders=_BUILDERS)
    rate = went.rate()
    busy = rate * _RUN_S / _SLOTS
    return {
        "slots": _SLOTS,
        "builders": _BUILDERS,
        "trials": went.records,
        "trials_per_s": rate,
        "busy": busy,
        "reported": shares(went.utilisation.get(RUNNER, {})),
        "reported_busy": shares(went.utilisation.get(RUNNER, {})).get(BUSY, 0.0),
        "passed": busy >= _LEAST_BUSY,
    }
