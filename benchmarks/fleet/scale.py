"""How many slots the search keeps busy: a simulated fleet from 1 to 256, and the core alone.

Slots sleep for 300 ms a trial. Everything else is real: session, leases, signs of life, store,
tracking, and Ray between the search and the slots' hosts. Efficiency is trials a second over what
as many slots could do at best. The core without Ray answers every trial at once, so its rate is
where it saturates; the fleet saturates at the best rate of all its sizes, which is that of so many
slots. First of all a session takes 100,000 records, and its memory is read on the way: see
`memory`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.command import say, workplace
from benchmarks.fleet.core import run_core
from benchmarks.fleet.memory import measure_memory
from tuner.record import Measurement, Provenance, Record, Status, Trial

RUN_S = 0.3
_SLOTS = (1, 4, 16, 64, 128, 256)
_ROUNDS = 40
"""Trials for each slot."""
_CORE_TRIALS = 8000
_EFFICIENCY, _CORE_RATE = 0.9, 800.0


def flags(parser: argparse.ArgumentParser) -> None:
    """Of the command line."""
    parser.add_argument("--slots", default=",".join(map(str, _SLOTS)), help="how many, in turn")
    parser.add_argument("--records", type=int, default=100_000, help="for the memory; 0 is none")


class AtOnce:
    """Measures anything in no time, in batches of as many as are free."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._held: list[Trial] = []

    def free(self) -> int:
        """Slots without a trial."""
        return self._slots - len(self._held)

    def submit(self, trials: Sequence[Trial], cutoff_s: float | None = None) -> None:
        """Take trials."""
        self._held += trials

    def collect(self, timeout_s: float) -> list[Record]:
        """All of them."""
        held, self._held = self._held, []
        measurement = Measurement(Status.OK, (1e-3, 1e-3, 1e-3), run_s=RUN_S)
        where = Provenance("slot", "simulated", "simulated")
        return [Record(trial, measurement, where, 1, time.time()) for trial in held]

    def toolchain(self) -> str:
        """That of its records."""
        return "simulated"

    def close(self) -> None:
        """Nothing to stop."""


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Memory, then the core, then fleets of growing size."""
    slots = [int(number) for number in options.slots.split(",") if number]
    with workplace(None) as folder:
        memory = measure_memory(folder, options.records) if options.records else None
        core = run_core(AtOnce(32), folder / "core", _CORE_TRIALS)
        say(f"core alone: {core.rate():.0f} trials/s")
        rows = _fleets(slots, folder)
    at_128 = next((row["efficiency"] for row in rows if row["slots"] == 128), None)
    return {
        "run_s": RUN_S,
        "core_trials_per_s": core.rate(),
        "saturates": saturation(rows),
        "rows": rows,
        "memory": memory,
        "passed": core.rate() >= _CORE_RATE
        and (at_128 is None or at_128 >= _EFFICIENCY)
        and (memory is None or memory["passed"]),
    }


def saturation(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Where a fleet does not grow with its slots any more: the best rate of all, the slots that do
    as much at best, and the largest fleet that was used well. Empty without fleets."""
    if not rows:
        return {}
    best = max(row["trials_per_s"] for row in rows)
    used = [row["slots"] for row in rows if row["efficiency"] >= _EFFICIENCY]
    return {
        "fleet_trials_per_s": best,
        "fleet_slots": best * RUN_S,
        "most_slots_used_well": max(used, default=0),
    }


def _fleets(slots: Sequence[int], folder: Path) -> list[dict[str, Any]]:
    from benchmarks.fleet.simulated import run_simulated
    from cluster.ray_workers.ray_cluster import ray_cluster
    from cluster.ray_workers.simulated import Pace

    rows = []
    with ray_cluster("local"):
        for number in slots:
            before = psutil.Process().cpu_times()
            went = run_simulated(
                Pace(RUN_S),
                folder / f"slots-{number}",
                _ROUNDS * number,
                slots=number,
                builders=max(1, number // 8),
            )
            after = psutil.Process().cpu_times()
            spent_s = after.user + after.system - before.user - before.system
            rows.append(
                {
                    "slots": number,
                    "trials": went.records,
                    "trials_per_s": went.rate(),
                    "efficiency": went.rate() * RUN_S / number,
                    "search_cpu_ms_per_trial": 1e3 * spent_s / went.records,
                }
            )
            say(f"{number} slots: {rows[-1]}")
    return rows
