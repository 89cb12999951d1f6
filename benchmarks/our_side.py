"""Our tuner as a user runs it: `tuner tune` in a process of its own, watched, and what it left."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import rate_per_s
from benchmarks.process_tree import Seen, Watched, watch
from benchmarks.race import Contestant, Ours, Race, run_race
from benchmarks.suites import Workload
from tuner.record import Record, Status
from tuner.runs.folder import RunFolder
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task
from tuner.view.folds import view_winners
from tuner.view.task_view import TaskView
from tuner.view.winners import choose_best

_RACE_LIMIT_S = 900.0
SKIP = 33
"""Rates "from trial 33 on" leave out the first ones, which pay for the start."""

ORCHESTRATION = (
    *("driver", "search actor", "space actor", "builder actor", "runner actor"),
    *("tracker", "ray", "other"),
)
SEARCH = ("space child", "fitter")


@dataclass(frozen=True, slots=True)
class Winner:
    """The best of a run with one task.

    Attributes:
        searched_s: its latency when the search timed it, which is how all others were timed.
    """

    task: Task
    record: Record
    searched_s: float


@dataclass(frozen=True, slots=True)
class OurRun:
    """One call of the command and the records in its run folder.

    Attributes:
        failure: empty if the command ended well.
        trials: records of the search whose program was built and run, in the order they came.
    """

    folder: Path
    failure: str
    watched: Watched
    trials: tuple[Record, ...]
    winner: Winner | None
    report: Mapping[str, Any]


def tune(
    model: Sequence[str],
    run: Path,
    *,
    limit_s: float,
    trials: int | None = None,
    time_budget_s: float | None = None,
    target: str = "llvm",
    seed: int = 0,
) -> OurRun:
    """Run the command.

    Args:
        model: MODEL and its `--arg`s.
        limit_s: after which it is ended; its records stay.
    """
    command = [sys.executable, "-m", "tuner", "tune", *model, "--target", target]
    command += ["--seed", str(seed), "--run", str(run), "--json", "--until=0"]
    if trials is not None:
        command += ["--trials", str(trials)]
    if time_budget_s is not None:
        command += ["--time-budget", f"{time_budget_s:g}s"]
    watched = watch(command, env=os.environ, limit_s=limit_s)
    return _read(run, watched)


def tune_once(model: Sequence[str], run: Path, **settings: Any) -> OurRun:
    """`tune`, unless this very command was carried out before: a benchmark that goes on must not
    take what was left to do for the whole. What the whole took lies beside the run.

    Its `watched` has then seen no processes.
    """
    kept = run.with_name(f"{run.name}.call.json")
    asked = {"model": list(model), **{name: str(value) for name, value in settings.items()}}
    known = json.loads(kept.read_text()) if kept.exists() else {}
    if known.get("asked") == asked:
        return _read(
            run, Watched("", known["started_s"], known["wall_s"], known["said"], "", Seen())
        )
    done = tune(model, run, **settings)
    watched = done.watched
    if not done.failure:
        times = {"started_s": watched.started_s, "wall_s": watched.wall_s}
        kept.write_text(json.dumps({"asked": asked, **times, "said": watched.output}))
    return done


def tune_workload(workload: Workload, run: Path, **settings: Any) -> OurRun:
    """`tune` a program of `benchmarks.workloads`."""
    return tune(workload.command_line(), run, **settings)


def best_of_tasks(run: Path) -> tuple[TaskView, ...]:
    """The winner of each task of a run."""
    with closing(SqliteStore(RunFolder(run).store, read_only=True)) as store:
        return view_winners(store)


def facts(ours: OurRun) -> dict[str, Any]:
    """What to say of a run with one task: times in seconds from the start of the process."""
    watched, times = ours.watched, [r.time_s for r in ours.trials]
    best = ours.winner.searched_s * 1e3 if ours.winner else None
    return {
        "failure": ours.failure,
        "wall_s": watched.wall_s,
        "trials": len(times),
        "trials_ok": sum(r.measurement.status is Status.OK for r in ours.trials),
        "first_trial_s": times[0] - watched.started_s if times else None,
        "last_trial_s": times[-1] - watched.started_s if times else None,
        "trials_per_s": len(times) / watched.wall_s,
        "trials_per_s_to_last": len(times) / (times[-1] - watched.started_s) if times else None,
        "trials_per_s_from_33": rate_per_s(times, skip=SKIP),
        "best_ms": best,
        "memory_mb": memory_mb(watched.seen),
        "cpu_ms_per_trial": cpu_ms_per_trial(watched.seen, times),
    }


def memory_mb(seen: Seen) -> dict[str, int]:
    """Peaks of the sums over all processes, see `benchmarks.process_tree`."""
    return {"rss": seen.peak_rss_bytes >> 20, "pss": seen.peak_pss_bytes >> 20}


def cpu_ms_per_trial(seen: Seen, times_s: Sequence[float]) -> dict[str, Any]:
    """CPU milliseconds for each trial by kind of process: of the whole run, and from 33 on.

    `orchestration` and `search` are sums of kinds: of all that neither makes nor compiles nor
    runs a candidate, and of what makes, scores and learns from them.
    """
    whole = seen.cpu_total()
    result = {"whole": _per_trial(whole, len(times_s))}
    if len(times_s) > SKIP:
        before, after = seen.cpu_at(times_s[SKIP - 1]), seen.cpu_at(times_s[-1])
        between = {kind: spent_s - before.get(kind, 0.0) for kind, spent_s in after.items()}
        result["from_33"] = _per_trial(between, len(times_s) - SKIP)
    return result


def _per_trial(cpu_s: Mapping[str, float], trials: int) -> dict[str, float]:
    if not trials:
        return {}
    per_trial = {kind: 1e3 * spent_s / trials for kind, spent_s in sorted(cpu_s.items())}
    sums = {
        "orchestration": sum(per_trial.get(kind, 0.0) for kind in ORCHESTRATION),
        "search": sum(per_trial.get(kind, 0.0) for kind in SEARCH),
    }
    return {**sums, **per_trial}


def _read(run: Path, watched: Watched) -> OurRun:
    failure = watched.failure_text()
    report: dict[str, Any] = {}
    if not watched.failure:
        try:
            report = json.loads(watched.output)
        except ValueError:
            failure = "it printed no JSON"
    trials, winner = _records(run)
    return OurRun(run, failure, watched, trials, winner, report)


def _records(run: Path) -> tuple[tuple[Record, ...], Winner | None]:
    path = RunFolder(run).store
    if not path.exists():
        return (), None
    with closing(SqliteStore(path, read_only=True)) as store:
        searched = [r for r in store.scan() if r.trial.rung == 0]
        tasks = store.tasks()
        record = choose_best(store, tasks[0].key) if len(tasks) == 1 else None
    trials = sorted(
        (r for r in searched if r.measurement.status.spends_budget), key=lambda r: r.time_s
    )
    winner = None
    if record is not None:
        key = record.trial.candidate.key
        times = [r.latency_s for r in searched if r.trial.candidate.key == key and r.latency_s]
        if times:
            winner = Winner(tasks[0], record, times[0])
    return tuple(trials), winner


def race_of_winner(
    ours: OurRun,
    against: Sequence[Contestant],
    *,
    cores: int,
    rounds: int,
    log: Path | None = None,
) -> Race:
    """Our winner and others in turns; see `benchmarks.race`.

    Args:
        log: what the racing process prints; None is a file in the run.
    """
    if ours.winner is None:
        return Race("ours has no winner", {}, {})
    task = ours.winner.task
    return run_race(
        task,
        (Ours(task, ours.winner.record.trial.candidate), *against),
        cores=cores,
        rounds=rounds,
        log=log or ours.folder / "race.log",
        limit_s=_RACE_LIMIT_S,
        cache=RunFolder(ours.folder).scratch / "references",
    )
