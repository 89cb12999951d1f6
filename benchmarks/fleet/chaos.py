"""Everything is killed, again and again, while a model is tuned: nothing may be lost.

A head and three measuring nodes run a real tuning of a small GEMM. Every few seconds something is
killed without a warning: a child process, a worker actor, a whole node, the search actor or the
driver; or a node is cut off from the others for a while, or told that it will go, and goes. A lost
node comes back some seconds later, and a driver is started again with the same command. The run
must end by itself, with one record for each trial. Slow candidates are not cut off, so that a
trial that is not OK is one that went wrong.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.command import say, workplace
from benchmarks.fleet.faults import KINDS, NODE, NODES, Faults
from benchmarks.fleet.local import driver, local_fleet, tune_gemm
from tuner.record import Record, Status
from tuner.run_location import RunLocation
from tuner.runs.remote import working_folder
from tuner.storage.objects.url import open_object_store
from tuner.storage.segments.format import Measured
from tuner.storage.segments.log import Position, read_on
from tuner.storage.sqlite_store import SqliteStore

HEAD = {"CPU": 1}
_LIMIT_S = 3600.0
_SOONER = 0.6
"""Where fewer kills have come than would make up the number by the end."""
_MOST_LOST, _LEAST_OK = 0.01, 0.95


def flags(parser: argparse.ArgumentParser) -> None:
    """Of the command line."""
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=100, help="at least; a tenth of each kind")
    parser.add_argument("--every", type=float, default=4.0, help="seconds between two, on average")
    parser.add_argument("--size", type=int, default=96, help="of the GEMM")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=Path, help="the run folder, which stays; it must be new")
    parser.add_argument(
        "--shared",
        action="store_true",
        help="name the run by a URL: it is kept in segments",
    )


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Tune under fire and count."""
    with workplace(None) as folder, local_fleet(HEAD) as fleet:
        for _ in range(NODES):
            fleet.add(NODE)
        at: Path = options.run or folder / "run"
        run = RunLocation.of(at.absolute().as_uri() if options.shared else at)
        limit = f"{int(_LIMIT_S)}s"
        arguments = tune_gemm(options.size, str(run), trials=options.trials, time_budget=limit)
        arguments += ["--seed", str(options.seed), "--no-cut"]
        log = folder / "driver.log"

        def start() -> psutil.Popen:
            return driver(fleet.address, arguments, out=log)

        faults = Faults(fleet, random.Random(options.seed), start, start())
        returns = Returns()
        started_s = time.monotonic()
        failure = _fight(faults, returns, run, options, started_s + _LIMIT_S)
        wall_s = time.monotonic() - started_s
        if failure:
            failure += ": " + log.read_text(errors="replace").strip()[-500:]
        result = judged(run, options.trials, options.kills, faults.done, wall_s, failure)
        return {**result, **returns.figures()}


@dataclass(slots=True)
class Returns:
    """How long a killed search takes to give the next record, whatever else is hit meanwhile.

    What was in flight when it was killed comes with its records: none counts that was in the
    store before.
    """

    took_s: list[float] = field(default_factory=list)
    _since: tuple[float, int] | None = None

    @property
    def waiting(self) -> bool:
        """Whether a search is on its way back."""
        return self._since is not None

    def gone(self, now_s: float, records: int) -> None:
        """A search was killed; counts from the first where one had not come back yet."""
        self._since = self._since or (now_s, records)

    def look(self, now_s: float, records: int) -> None:
        """There are so many records now."""
        if self._since is not None and records > self._since[1]:
            self.took_s.append(now_s - self._since[0])
            self._since = None

    def figures(self) -> dict[str, float | None]:
        """Median and worst, in seconds; None where no search was killed."""
        return {
            "search_back_median_s": statistics.median(self.took_s) if self.took_s else None,
            "search_back_worst_s": max(self.took_s, default=None),
        }


def _fight(
    faults: Faults,
    returns: Returns,
    run: RunLocation,
    options: argparse.Namespace,
    until_s: float,
) -> str:
    """Kill until the run ends by itself; why it did not, if it did not."""
    next_s = 0.0
    while time.monotonic() < until_s:
        time.sleep(0.1)
        now_s = time.monotonic()
        code = faults.driver.poll()
        if code is not None:
            return "" if code == 0 else f"the driver ended with code {code}"
        faults.mend(now_s)
        if returns.waiting:
            returns.look(now_s, _records(run))
        if not next_s:
            next_s = now_s + options.every if _records(run) else 0.0
        elif now_s >= next_s and (records := _records(run)) < options.trials:
            if faults.inject() == "search":
                returns.gone(now_s, _records(run))
            kills = faults.done.total()
            say(f"{kills} kills, {records} records: {dict(faults.done)}")
            behind = kills * options.trials < 1.2 * options.kills * records
            pause_s = options.every * (_SOONER if behind else 1.0)
            next_s = now_s + faults.rng.uniform(0.5, 1.5) * pause_s
    return f"not done after {_LIMIT_S:g} s"


def _records(run: RunLocation) -> int:
    store = working_folder(run).store
    if not store.exists():
        return 0
    try:
        with closing(SqliteStore(store, read_only=True)) as opened:
            return sum(each.number for each in opened.tallies())
    except Exception:  # it is just being made
        return 0


def _stored(run: RunLocation) -> list[Record]:
    """All records of a run, from what is its truth: the database, or the segments."""
    if run.is_url:
        segments = (segment for _, segment in read_on(open_object_store(run.text), Position()))
        return [e.record for s in segments for e in s.entries if isinstance(e, Measured)]
    with closing(SqliteStore(working_folder(run).store, read_only=True)) as store:
        return list(store.scan())


def judged(
    run: RunLocation, trials: int, kills: int, by_kind: Counter[str], wall_s: float, failure: str
) -> dict[str, Any]:
    """What the store of a run says, and whether it is as it should be."""
    records = [r for r in _stored(run) if r.trial.rung == 0]
    with closing(SqliteStore(working_folder(run).store, read_only=True)) as store:
        sessions = len(store.sessions())
    keys = Counter(r.trial.key for r in records)
    statuses = Counter(r.measurement.status for r in records)
    ok, lost = statuses[Status.OK], statuses[Status.LOST]
    duplicates = sum(count - 1 for count in keys.values())
    each = min(by_kind[kind] for kind in KINDS)
    return {
        "failure": failure,
        "records": len(records),
        "ok": ok,
        "censored": statuses[Status.CENSORED],
        "duplicates": duplicates,
        "lost": lost,
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "kills": dict(by_kind),
        "kills_total": sum(by_kind.values()),
        "sessions": sessions,
        "retried": sum(r.attempt > 1 for r in records),
        "wall_s": wall_s,
        "trials_per_s": len(records) / wall_s,
        "passed": not failure
        and len(records) == trials
        and not duplicates
        and lost <= _MOST_LOST * trials
        and ok >= _LEAST_OK * trials
        and sum(by_kind.values()) >= kills
        and each >= kills // 10,
    }
