"""What runs of one model chose, timed in turns: `python -m benchmarks.winners RUN RUN [...]`.

A run's own times are of its own minutes: whether it found better kernels than another, a machine
that others share tells only where both are timed in turns. Printed is the model's time with the
kernels of each run over that with the first run's, and the same of each task.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import say
from benchmarks.kernel_timer import KernelTimer, start_timer
from benchmarks.machine import about
from tuner.effort import EFFORTS
from tuner.runs.folder import RunFolder
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task
from tuner.view.winners import choose_best


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.winners")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    stores = [SqliteStore(RunFolder(run).store, read_only=True) for run in options.runs]
    tasks = stores[0].tasks()
    with start_timer(tasks[0].target) as timer:
        rows = [row for task in tasks if (row := _compare(task, stores, timer, options.rounds))]
    trials = [sum(each.number for each in store.tallies()) for store in stores]
    for store in stores:
        store.close()
    totals_s = [
        math.fsum(row["weight"] * row["times_s"][n] for row in rows) for n in range(len(trials))
    ]
    found = {"trials": trials, "over_the_first": [s / totals_s[0] for s in totals_s]}
    if options.out:
        report = {"machine": about(), **found, "rows": rows}
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(found))


def _compare(
    task: Task, stores: Sequence[SqliteStore], timer: KernelTimer, rounds: int
) -> dict[str, Any] | None:
    """Medians of the times of a task's winners; None where a run has none."""
    won = [record.trial.candidate for s in stores if (record := choose_best(s, task.key))]
    if len(won) < len(stores):
        return None
    kernels = {candidate.key: candidate for candidate in won}
    timed = timer.time(task, kernels, EFFORTS["normal"].finalist_timing, rounds)
    if not all(timed.values()):
        return None
    times_s = [statistics.median(timed[candidate.key]) for candidate in won]
    say(f"{task.name} {[round(s / times_s[0], 3) for s in times_s]}")
    return {"task": task.name, "weight": task.weight, "times_s": times_s}


if __name__ == "__main__":
    main()
