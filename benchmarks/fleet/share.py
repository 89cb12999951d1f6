"""Whether two equal jobs on four measurement slots get equal parts of them.

Both tune a small GEMM on four measuring nodes, one a little later than the other. Counted are the
seconds in which each has runners at its disposal, while both are at work.
"""

from __future__ import annotations

import argparse
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.command import say, workplace
from benchmarks.fleet.guard import kill
from benchmarks.fleet.local import driver, local_fleet, tune_gemm
from tuner.errors import TunerError
from tuner.runs.folder import RunFolder
from tuner.storage.sqlite_store import SqliteStore
from tuner.utilisation import RUNNER, STARTING, total

NODE = {"CPU": 1, "measure": 1}
_SLOTS, _ENDLESS = 4, 100_000
_LEAST, _MOST = 0.4, 0.6
_READY_S = 180.0


def flags(parser: argparse.ArgumentParser) -> None:
    """Of the command line."""
    parser.add_argument("--seconds", type=float, default=120.0, help="in which both are at work")
    parser.add_argument("--size", type=int, default=96, help="of the GEMM")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run both for a while."""
    with workplace(None) as folder, local_fleet({"CPU": 2}) as fleet:
        for _ in range(_SLOTS):
            fleet.add(NODE)
        runs = [folder / "first", folder / "second"]
        drivers = []
        try:
            for run in runs:
                drivers.append(
                    driver(
                        fleet.address,
                        tune_gemm(options.size, run, trials=_ENDLESS),
                        out=folder / "log",
                    )
                )
                _until_at_work(run, folder / "log")
            before = [slot_seconds(run) for run in runs]
            time.sleep(options.seconds)
            after = [slot_seconds(run) for run in runs]
        finally:
            kill(drivers)
    got = [b - a for a, b in zip(before, after, strict=True)]
    shares = [seconds / sum(got) for seconds in got]
    say(f"shares: {shares}")
    return {
        "slots": _SLOTS,
        "seconds": options.seconds,
        "slot_seconds": got,
        "shares": shares,
        "used": sum(got) / (_SLOTS * options.seconds),
        "passed": all(_LEAST <= share <= _MOST for share in shares),
    }


def slot_seconds(run: Path) -> float:
    """Seconds of runners that a run has had, those in which they started left out."""
    with closing(SqliteStore(RunFolder(run).store, read_only=True)) as store:
        spent = total([span.utilisation for span in store.sessions()])
    return sum(s for category, s in spent.get(RUNNER, {}).items() if category != STARTING)


def _until_at_work(run: Path, log: Path) -> None:
    until_s = time.monotonic() + _READY_S
    while time.monotonic() < until_s:
        if RunFolder(run).store.exists() and slot_seconds(run) > 0:
            return
        time.sleep(0.5)
    raise TunerError(f"a run did not begin: {log.read_text(errors='replace').strip()[-300:]}")
