"""MetaSchedule in a process of its own, watched, and what it left."""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import rate_per_s
from benchmarks.metaschedule_child import DATABASE, EVENTS, Order
from benchmarks.our_side import SKIP, memory_mb
from benchmarks.process_tree import Watched, watch
from benchmarks.suites import Workload
from spaces.targets.cores import thread_variables
from tuner.effort import Timing

_ROOT = Path(__file__).parent.parent
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class TheirTrial:
    """A program that was built and run; `latency_s` is None where it gave no time.

    Attributes:
        time_s: seconds since the epoch when the result was there.
        latency_s: mean of the samples, which is what MetaSchedule ranks by.
    """

    time_s: float
    latency_s: float | None


@dataclass(frozen=True, slots=True)
class TheirRun:
    """One run.

    Attributes:
        begun_s: seconds since the epoch when it had imported all it needs; None if it never did.
        failed_builds: programs that were not built, with `build_error` one of the reasons.
        database: folder of its JSON database.
    """

    order: Order
    failure: str
    watched: Watched
    begun_s: float | None
    trials: tuple[TheirTrial, ...]
    failed_builds: int
    build_error: str
    run_error: str

    @property
    def database(self) -> Path:
        """Folder of its JSON database, which may not be there."""
        return Path(self.order.folder) / DATABASE

    @property
    def best_s(self) -> float | None:
        """Best latency by its own measurements."""
        return min((t.latency_s for t in self.trials if t.latency_s is not None), default=None)


def order_for(
    workload: Workload,
    folder: Path,
    *,
    target: str,
    cores: int,
    trials: int,
    seed: int,
    as_shipped: bool,
    timing: Timing,
    module: str = "",
) -> Order:
    """The order that gives MetaSchedule what ours gets.

    Args:
        timing: ours. Its samples fill the same total time, and are as many as ours has at least:
            a slow program is timed as often as by ours, a fast one as long.
        module: see `Order`.
    """
    return Order(
        folder=str(folder),
        workload=workload.name,
        args=dict(workload.args),
        target=target,
        trials=trials,
        seed=seed,
        workers=cores,
        as_shipped=as_shipped,
        timeout_s=_TIMEOUT_S,
        samples=timing.min_samples,
        sample_ms=math.ceil(1e3 * timing.total_s / timing.min_samples),
        module=module,
    )


def tune(
    order: Order, *, cores: int, limit_s: float, variables: Mapping[str, str] | None = None
) -> TheirRun:
    """Run it.

    Args:
        cores: threads of each kernel.
        limit_s: after which it is ended; what it found stays.
        variables: of its environment, besides this process's.
    """
    folder = Path(order.folder)
    folder.mkdir(parents=True)
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, **(variables or {}), **thread_variables(cores), "PYTHONPATH": path}
    (folder / DATABASE).mkdir()
    command = [sys.executable, "-m", "benchmarks.metaschedule_child", order.to_json()]
    watched = watch(command, env=env, limit_s=limit_s, cwd=str(folder))
    return read_run(order, watched, _events(folder / EVENTS))


def read_run(order: Order, watched: Watched, events: Sequence[Mapping[str, Any]]) -> TheirRun:
    """What events say."""
    failure = watched.failure_text()
    built = [e for e in events if e["kind"] == "built"]
    ran = [e for e in events if e["kind"] == "ran"]
    begun = [e["time_s"] for e in events if e["kind"] == "begun"]
    return TheirRun(
        order=order,
        failure=failure,
        watched=watched,
        begun_s=begun[0] if begun else None,
        trials=tuple(TheirTrial(e["time_s"], _mean(e["samples_s"])) for e in ran),
        failed_builds=sum(e["failed"] for e in built),
        build_error=next((e["error"] for e in built if e["error"]), ""),
        run_error=next((e["error"] for e in ran if e["error"]), ""),
    )


def facts(theirs: TheirRun) -> dict[str, Any]:
    """What to say of a run: times in seconds from the start of the process."""
    started_s, times = theirs.watched.started_s, [t.time_s for t in theirs.trials]
    return {
        "failure": theirs.failure,
        "wall_s": theirs.watched.wall_s,
        "imports_s": None if theirs.begun_s is None else theirs.begun_s - started_s,
        "trials": len(times),
        "trials_ok": sum(t.latency_s is not None for t in theirs.trials),
        "failed_builds": theirs.failed_builds,
        "errors": [e for e in (theirs.build_error, theirs.run_error) if e],
        "first_trial_s": times[0] - started_s if times else None,
        "last_trial_s": times[-1] - started_s if times else None,
        "trials_per_s": len(times) / theirs.watched.wall_s,
        "trials_per_s_to_last": len(times) / (times[-1] - started_s) if times else None,
        "trials_per_s_from_33": rate_per_s(times, skip=SKIP),
        "best_ms": None if theirs.best_s is None else 1e3 * theirs.best_s,
        "memory_mb": memory_mb(theirs.watched.seen),
        "evaluator": "its defaults"
        if theirs.order.as_shipped
        else f"{theirs.order.samples} samples of at least {theirs.order.sample_ms} ms",
    }


def _mean(samples_s: Sequence[float]) -> float | None:
    good = bool(samples_s) and all(0 < s < math.inf for s in samples_s)
    return statistics.fmean(samples_s) if good else None


def _events(path: Path) -> list[dict[str, Any]]:
    """Those that were written whole."""
    events = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            events.append(json.loads(line))
        except ValueError:
            break  # it was cut off there
    return events
