"""A session of the core on a simulated fleet, on the Ray that this process is connected to."""

from __future__ import annotations

from pathlib import Path

from benchmarks.fleet.core import Went, run_core
from cluster.ray_workers.ray_measurer import RayMeasurer
from cluster.ray_workers.simulated import Pace, SimulatedFleet
from cluster.scaling.scaling_policy import WorkerCounts
from tuner.effort import EFFORTS
from tuner.utilisation import Utilisation


def run_simulated(pace: Pace, folder: Path, trials: int, *, slots: int, builders: int) -> Went:
    """Run so many trials on slots and builders that sleep."""
    fleet = SimulatedFleet(slots + builders, pace)
    utilisation = Utilisation()
    measurer = RayMeasurer(fleet.starters(), effort=EFFORTS["quick"], utilisation=utilisation)
    measurer.resize(WorkerCounts(slots, builders, 1))
    try:
        return run_core(measurer, folder, trials, utilisation=utilisation)
    finally:
        measurer.close()
        fleet.close()
