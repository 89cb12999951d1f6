"""What twice as many trials brought, beside what a run had predicted: `python -m
benchmarks.doublings RUN [RUN...]`, of runs that used their whole budget (`--until 0`).

After n trials a run predicts which share of the model's time the next n save. The fastest kernels
of its first n trials and of its first 2 n are timed in turns, as the times of its own minutes are
partly luck. A prediction is close where it is within a factor of 1.5 of what came, or where both
are below what can be told.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.command import say
from benchmarks.kernel_timer import KernelTimer, start_timer
from benchmarks.machine import about
from tuner.candidate import Candidate
from tuner.effort import EFFORTS
from tuner.runs.folder import RunFolder
from tuner.storage.history import History, Outlook
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task
from tuner.view.progress import fold

_CLOSE = 1.5
_TELLS = 0.01
"""Shares below this cannot be told from noise."""
_APART = 1.4
"""The least factor between the trials of two predictions that are looked at."""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.doublings")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for run in options.runs:
        with closing(SqliteStore(RunFolder(run).store, read_only=True)) as store:
            for row in _look(store, options.rounds):
                rows.append({"run": run.name, **row})
                say(json.dumps(rows[-1]))
    close = [is_close(row["predicted"], row["came"]) for row in rows]
    found = {"doublings": len(rows), "close": statistics.fmean(close) if close else None}
    if options.out:
        report = {"machine": about(), **found, "rows": rows}
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(found))


def is_close(predicted: float, came: float) -> bool:
    """Whether a prediction is within the factor of what came, or both are too little to tell."""
    low, high = sorted((max(predicted, _TELLS), max(came, _TELLS)))
    return high <= _CLOSE * low


def outlooks_to_judge(outlooks: Sequence[Outlook], trials: int) -> list[Outlook]:
    """The predictions whose doubling the run has made, those left out that hardly differ."""
    chosen: list[Outlook] = []
    for outlook in outlooks:
        if 2 * outlook.trials > trials:
            break
        if not chosen or outlook.trials >= _APART * chosen[-1].trials:
            chosen.append(outlook)
    return chosen


def _look(store: SqliteStore, rounds: int) -> Iterator[dict[str, Any]]:
    tasks, spent = store.tasks(), 0
    progress = fold(tasks, {}, ())
    fastest: dict[str, list[tuple[int, Candidate]]] = {task.key: [] for task in tasks}
    for record in store.scan():
        key, before_s = record.trial.task_key, progress[record.trial.task_key].best_s
        progress[key].observe(record)
        spent += record.measurement.status.spends_budget and not record.trial.rung
        if progress[key].best_s != before_s:
            fastest[key].append((spent, record.trial.candidate))
    outlooks = outlooks_to_judge(store.get(History).outlooks, spent)
    ends = sorted({n for outlook in outlooks for n in (outlook.trials, 2 * outlook.trials)})
    totals_s = dict.fromkeys(ends, 0.0)
    with start_timer(tasks[0].target) as timer:
        for task in tasks:
            for end, seconds in _times_s(task, fastest[task.key], ends, timer, rounds).items():
                totals_s[end] += task.weight * seconds
    for outlook in outlooks:
        came = 1.0 - totals_s[2 * outlook.trials] / totals_s[outlook.trials]
        yield {"trials": outlook.trials, "predicted": outlook.next_gain, "came": came}


def _times_s(
    task: Task,
    fastest: Sequence[tuple[int, Candidate]],
    ends: Sequence[int],
    timer: KernelTimer,
    rounds: int,
) -> dict[int, float]:
    """What the fastest kernel of so many trials takes, for each of `ends`, all timed in turns; none
    of a task that had no kernel by the first of them, or whose kernel fails here."""
    by = {end: [kernel for number, kernel in fastest if number <= end][-1:] for end in ends}
    kernels = {kernel.key: kernel for found in by.values() for kernel in found}
    timed = timer.time(task, kernels, EFFORTS["normal"].finalist_timing, rounds)
    if not all(by.values()) or not all(timed.values()):
        return {}
    return {end: statistics.median(timed[found[0].key]) for end, found in by.items()}


if __name__ == "__main__":
    main()
