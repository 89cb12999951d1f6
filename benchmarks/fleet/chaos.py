"""Everything is killed, again and again, while a model is tuned: nothing may be lost.

A head and two measuring nodes run a real tuning of a small GEMM. Every few seconds something is
killed without a warning: a child process, a worker actor, a whole node, the search actor or the
driver. A lost node comes back some seconds later, and a driver is started again with the same
command. The run must end by itself, with one record for each trial. Slow candidates are not cut
off, so that a trial that is not OK is one that went wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.command import say, workplace
from benchmarks.fleet.local import LocalFleet, driver, kill, local_fleet, tune_gemm
from benchmarks.process_tree import kind_of
from tuner.place_url import open_place
from tuner.record import Record, Status
from tuner.run_folder import RunFolder
from tuner.run_place import run_place
from tuner.segment_log import Position, read_on
from tuner.segments import Measured
from tuner.sqlite_store import SqliteStore

KINDS = ("child", "actor", "node", "search", "driver")
NODE = {"CPU": 1, "measure": 1}
HEAD = {"CPU": 1}
_NODES = 2
_BACK_AFTER_S = (1.0, 4.0)
_LIMIT_S = 3600.0
_SOONER = 0.6
"""Where fewer kills have come than would make up the number by the end."""
_MOST_LOST, _LEAST_OK = 0.01, 0.95
_CHILDREN = ("space child", "builder child", "runner child")
_ACTORS = ("space actor", "builder actor", "runner actor")
_SEARCH = "search actor"


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


@dataclass(slots=True)
class Chaos:
    """Kills things of a fleet, the least killed kind first.

    Args:
        start_driver: starts the command again.
    """

    fleet: LocalFleet
    rng: random.Random
    start_driver: Callable[[], psutil.Popen]
    driver: psutil.Popen
    kills: Counter[str] = field(default_factory=Counter)
    _away: list[float] = field(default_factory=list)

    def strike(self) -> None:
        """Kill something of the kind that was killed least, where there is such a thing."""
        kinds = list(KINDS)
        self.rng.shuffle(kinds)
        for kind in sorted(kinds, key=lambda k: self.kills[k]):
            if self._kill(kind):
                self.kills[kind] += 1
                return

    def mend(self, now_s: float) -> None:
        """Bring back what was away long enough."""
        for back_s in [s for s in self._away if s <= now_s]:
            self._away.remove(back_s)
            self.fleet.add(NODE)

    def _kill(self, kind: str) -> bool:
        if kind == "driver":
            kill([self.driver])
            self.driver = self.start_driver()
            return True
        if kind == "node":
            nodes = self.fleet.nodes
            if len(nodes) < _NODES:  # one at a time
                return False
            self.fleet.lose(self.rng.choice(nodes))
            self._away.append(time.monotonic() + self.rng.uniform(*_BACK_AFTER_S))
            return True
        wanted = {"child": _CHILDREN, "actor": _ACTORS, "search": (_SEARCH,)}[kind]
        found = self._processes(wanted)
        if not found:
            return False
        kill([self.rng.choice(found)])
        return True

    def _processes(self, kinds: Sequence[str]) -> list[psutil.Process]:
        found = []
        for process in self.fleet.processes():
            with contextlib.suppress(psutil.Error):
                if kind_of(process.cmdline()) in kinds:
                    found.append(process)
        return sorted(found, key=lambda process: process.pid)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Tune under fire and count."""
    with workplace(None) as folder, local_fleet(HEAD) as fleet:
        for _ in range(_NODES):
            fleet.add(NODE)
        run: Path | str = options.run or folder / "run"
        if options.shared:
            run = Path(run).absolute().as_uri()
        limit = f"{int(_LIMIT_S)}s"
        arguments = tune_gemm(options.size, run, trials=options.trials, time_budget=limit)
        arguments += ["--seed", str(options.seed), "--no-cut"]
        log = folder / "driver.log"

        def start() -> psutil.Popen:
            return driver(fleet.address, arguments, out=log)

        chaos = Chaos(fleet, random.Random(options.seed), start, start())
        started_s = time.monotonic()
        failure = _fight(chaos, run, options, started_s + _LIMIT_S)
        wall_s = time.monotonic() - started_s
        if failure:
            failure += ": " + log.read_text(errors="replace").strip()[-500:]
        return judged(run, options.trials, options.kills, chaos.kills, wall_s, failure)


def _fight(chaos: Chaos, run: Path | str, options: argparse.Namespace, until_s: float) -> str:
    """Kill until the run ends by itself; why it did not, if it did not."""
    next_s = 0.0
    while time.monotonic() < until_s:
        time.sleep(0.1)
        now_s = time.monotonic()
        code = chaos.driver.poll()
        if code is not None:
            return "" if code == 0 else f"the driver ended with code {code}"
        chaos.mend(now_s)
        if not next_s:
            next_s = now_s + options.every if _records(run) else 0.0
        elif now_s >= next_s and (records := _records(run)) < options.trials:
            chaos.strike()
            say(f"{sum(chaos.kills.values())} kills, {records} records: {dict(chaos.kills)}")
            behind = sum(chaos.kills.values()) * options.trials < 1.2 * options.kills * records
            pause_s = options.every * (_SOONER if behind else 1.0)
            next_s = now_s + chaos.rng.uniform(0.5, 1.5) * pause_s
    return f"not done after {_LIMIT_S:g} s"


def _records(run: Path | str) -> int:
    store = _index(run)
    if not store.exists():
        return 0
    try:
        with closing(SqliteStore(store, read_only=True)) as opened:
            return sum(sum(counts.values()) for counts in opened.counts().values())
    except Exception:  # it is just being made
        return 0


def _index(run: Path | str) -> Path:
    """The database of a run on this machine."""
    return (RunFolder(run) if isinstance(run, Path) else run_place(run).run).store


def _stored(run: Path | str) -> list[Record]:
    """All records of a run, from what is its truth: the database, or the segments."""
    if isinstance(run, str):
        segments = (segment for _, segment in read_on(open_place(run), Position()))
        return [e.record for s in segments for e in s.entries if isinstance(e, Measured)]
    with closing(SqliteStore(_index(run), read_only=True)) as store:
        return list(store.scan())


def judged(
    run: Path | str, trials: int, kills: int, by_kind: Counter[str], wall_s: float, failure: str
) -> dict[str, Any]:
    """What the store of a run says, and whether it is as it should be."""
    records = [r for r in _stored(run) if r.trial.rung == 0]
    with closing(SqliteStore(_index(run), read_only=True)) as store:
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
