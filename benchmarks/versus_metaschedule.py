"""Ours against TVM's MetaSchedule: one program, the same number of trials, one machine.

    python -m benchmarks.versus_metaschedule --workload gemm --arg m=512 --trials 128 --json
    python -m benchmarks.versus_metaschedule --suite geomean --trials 128 --out result.json
    python -m benchmarks.versus_metaschedule --workload gemm --trials 128 --as-shipped
    python -m benchmarks.versus_metaschedule --suite operators-long --trials 64 --their-trials 1000

What each side gets. Both: the program, the target, its cores as kernel threads and as build
workers, the trial budget, the seed, the machine to itself; they run one after the other, in a
suite in turning order. Ours: the command `tuner tune` with its defaults, the embedded cluster and
the tracking included. MetaSchedule: `tune_tir` with its defaults, and

- LocalBuilder with 120 s (not 30 s) for a build, and an initializer in which each worker imports
  the tensor intrinsics once, in a quarter of the usual time (`benchmarks.intrinsics_import`). It
  starts new workers for every batch, so that it pays for this once for each worker and batch.
- LocalRunner with an evaluator that takes as many samples as ours takes at least, filling the same
  total time. Ours takes more samples of programs near its best and cuts hopeless ones short.

With `--as-shipped` MetaSchedule gets none of these: LocalBuilder and LocalRunner by themselves.

A trial is a program that was built and run. MetaSchedule's budget counts failed builds too, ours
does not, so MetaSchedule may make fewer. Wall times are from the start of a process to its end:
ours ends after it timed its finalists again. `race`: both winners in one process, in turns, each
built as its user would build it; `ratio` is our latency over theirs.

Rates from trial 33 on say something from about 256 trials: MetaSchedule times a batch of 64 at
once, after it searched for and built all of them. `trials_per_s_to_last` ends with the last trial.

`time_to_their_best`: when our search first had a program as fast as MetaSchedule's winner. What
as fast means to our search's clock is calibrated by the race: theirs over ours there, times what
the search had measured of our winner. `from_first_trial` begins when our first trial began, and
for MetaSchedule when its first one was done. Ratios "to their end" are over the whole wall time
of MetaSchedule, not over the moment when it found its best.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import metaschedule_side, our_side
from benchmarks.command import (
    Rows,
    common_flags,
    cores_of,
    fresh,
    run_main,
    settings_of,
    workplace,
)
from benchmarks.figures import found, geometric_mean, quotient, reached_s
from benchmarks.metaschedule_side import TheirRun
from benchmarks.our_side import OurRun, race_of_winner
from benchmarks.race import MetaSchedules, Race
from benchmarks.suites import Workload, parsed, suite
from tuner import checks
from tuner.effort import EFFORTS

_TIMES = {
    "from_start": "time_to_their_best.metaschedule.from_start_s",
    "from_first_trial": "time_to_their_best.metaschedule.from_first_trial_s",
    "from_start_to_their_end": "metaschedule.wall_s",
    "from_first_trial_to_their_end": "metaschedule.wall_s",
}
"""Ratios of the time to their best, and where in a row is what they are over."""


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compare on each program asked for."""
    chosen = suite(options.suite) if options.suite else (parsed(options.workload, options.arg),)
    target, cores = cores_of(options.target)
    settings = {
        **settings_of(options, target, cores),
        "metaschedule": "as shipped" if options.as_shipped else "best configuration",
        **({"their_trials": options.their_trials} if options.their_trials else {}),
    }
    rows = Rows(options.out, settings)
    for number, workload in rows.missing(chosen):
        with workplace(options.keep) as folder:
            place = fresh(folder, workload.name)
            place.mkdir()
            rows.add(_compare(workload, place, options, settings, theirs_first=number % 2 == 1))
    return rows.finish(summary(rows.rows))


def _compare(
    workload: Workload,
    place: Path,
    options: argparse.Namespace,
    settings: Mapping[str, Any],
    *,
    theirs_first: bool,
) -> dict[str, Any]:
    """Both sides on one program."""
    limit_s, target, cores = (
        checks.duration_s(options.limit),
        str(settings["target"]),
        int(settings["cores"]),
    )
    order = metaschedule_side.order_for(
        workload,
        place / "metaschedule",
        target=target,
        cores=cores,
        trials=options.their_trials or options.trials,
        seed=options.seed,
        as_shipped=options.as_shipped,
        timing=EFFORTS["normal"].timing,
    )
    theirs = metaschedule_side.tune(order, cores=cores, limit_s=limit_s) if theirs_first else None
    ours = our_side.tune_workload(
        workload,
        place / "ours",
        limit_s=limit_s,
        trials=options.trials,
        target=target,
        seed=options.seed,
    )
    theirs = theirs or metaschedule_side.tune(order, cores=cores, limit_s=limit_s)
    against = [MetaSchedules(theirs.database, order.target)]
    log = place / "race.log"
    race = race_of_winner(ours, against, cores=cores, rounds=options.rounds, log=log)
    return row(workload, ours, theirs, race)


def row(workload: Workload, ours: OurRun, theirs: TheirRun, race: Race) -> dict[str, Any]:
    """What to report of one program."""
    our_facts, their_facts = our_side.facts(ours), metaschedule_side.facts(theirs)
    result: dict[str, Any] = {
        **workload.to_json(),
        "ours": our_facts,
        "metaschedule": their_facts,
        "race": race.told("ours", "metaschedule"),
        "wall_ratio": quotient(our_facts["wall_s"], their_facts["wall_s"]),
        "rate_ratio": quotient(our_facts["trials_per_s"], their_facts["trials_per_s"]),
        "rate_ratio_from_33": quotient(
            our_facts["trials_per_s_from_33"], their_facts["trials_per_s_from_33"]
        ),
        "time_to_their_best": time_to_their_best(ours, theirs, race.samples_s),
    }
    return result


def time_to_their_best(
    ours: OurRun, theirs: TheirRun, samples_s: Mapping[str, Sequence[float]]
) -> dict[str, Any] | None:
    """See the module; seconds, and ours over theirs. None where one side has no winner."""
    winner, best_s = ours.winner, theirs.best_s
    if winner is None or best_s is None or not {"ours", "metaschedule"} <= samples_s.keys():
        return None
    against = statistics.median(samples_s["metaschedule"]) / statistics.median(samples_s["ours"])
    goal_s = winner.searched_s * against
    timed = [(r.time_s, r.latency_s) for r in ours.trials if r.latency_s is not None]
    reached = reached_s(timed, goal_s)
    theirs_reached = min(t.time_s for t in theirs.trials if t.latency_s == best_s)
    first = ours.trials[0]
    began_s = first.time_s - first.measurement.build_s - first.measurement.run_s
    mine = _since(reached, ours.watched.started_s, began_s)
    return {
        "goal_ms": 1e3 * goal_s,
        "ours": mine,
        "metaschedule": _since(theirs_reached, theirs.watched.started_s, theirs.trials[0].time_s),
        "ratio": {
            "from_start": quotient(mine["from_start_s"], theirs_reached - theirs.watched.started_s),
            "from_start_to_their_end": quotient(mine["from_start_s"], theirs.watched.wall_s),
            "from_first_trial": quotient(
                mine["from_first_trial_s"], theirs_reached - theirs.trials[0].time_s
            ),
            "from_first_trial_to_their_end": quotient(
                mine["from_first_trial_s"], theirs.watched.wall_s
            ),
        },
    }


def _since(reached: float | None, started_s: float, began_s: float) -> dict[str, float | None]:
    if reached is None:
        return {"from_start_s": None, "from_first_trial_s": None}
    return {"from_start_s": reached - started_s, "from_first_trial_s": reached - began_s}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Geometric means over the rows where both sides gave a figure, and how many did.

    `at_least` counts a row where ours never was as fast as their winner with all the time that
    ours took: the mean would be no smaller, had we waited.
    """
    figures = {
        "latency": [r["race"]["ratio"]["of_medians"] for r in rows if r["race"]["ratio"]],
        "wall": [r["wall_ratio"] for r in rows],
        "rate": [r["rate_ratio"] for r in rows],
        "rate_from_33": [r["rate_ratio_from_33"] for r in rows],
    }
    return {
        "rows": len(rows),
        **{f"{name}_ratio": _mean(values) for name, values in figures.items()},
        **{
            f"time_to_their_best_{since}_ratio": _times(rows, since, against)
            for since, against in _TIMES.items()
        },
    }


def _mean(values: Sequence[float | None]) -> dict[str, Any]:
    known = [v for v in values if v is not None]
    return {"geometric_mean": geometric_mean(known), "of": len(known)}


def _times(rows: Sequence[Mapping[str, Any]], since: str, against: str) -> dict[str, Any]:
    compared = [row for row in rows if row["time_to_their_best"]]
    ratios = [row["time_to_their_best"]["ratio"][since] for row in compared]
    bounds = [
        quotient(row["ours"]["wall_s"], found(row, against))
        for row, known in zip(compared, ratios, strict=True)
        if known is None
    ]
    every = [r for r in (*ratios, *bounds) if r is not None]
    return {**_mean(ratios), "not_reached": len(bounds), "at_least": geometric_mean(every)}


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.versus_metaschedule", description="Ours against MetaSchedule."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--workload", help="a function of benchmarks.workloads")
    what.add_argument("--suite", help="a list of benchmarks.suites, such as geomean")
    parser.add_argument("--arg", action="append", default=[], metavar="m=512")
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--their-trials", type=int, help="MetaSchedule's; default: as many as ours")
    parser.add_argument("--as-shipped", action="store_true", help="MetaSchedule as it comes")
    parser.add_argument("--keep", type=Path, help="folder for runs and logs; default: none is kept")
    common_flags(parser, limit="1h")
    run_main(parser, measure)


if __name__ == "__main__":
    main()
