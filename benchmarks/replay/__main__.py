"""Search policies compared on recorded spaces, without a device: trials to near the best.

    python -m benchmarks.replay --json [--policy random,evolution,...] [--task GLOB]
        [--recordings DIR] [--noise none|normal|tailed|recorded]

Each policy runs whole sessions (the real loop, search and learner) on every recording, in virtual
time, with three trials in flight and several seeds. What a search is told has the noise that was
asked for (`tuner.replay.noise`); what it found is judged by true times: the medians of the rounds
that were recorded. A base model is trained on the other recordings only, so nothing is judged
on a task it has seen, and seeds are the best candidates of other tasks, answered by what was
recorded as their mutations. Trials count as in a budget; the default schedule is one of them.

    random              fresh samples, in the order they come
    evolution-blind     evolution with a model that knows nothing
    evolution           evolution with a cost model learned from scratch
    local, process      evolution over a pool, by the rules of `tuner.search.pool.rules`; the
                        latter is what a run does, and evolves what has no template
    process+prior       the same with estimates that the shipped base model corrects
    process+seeds       begun with the best of similar tasks, and their neighbours
    evolution+base      the same as `evolution`, boosted on top of a base model
    FILE.py:CLASS       a strategy of one's own

The first two depend on whole numbers alone: `--golden FILE` writes their curves, which a test
compares exactly.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.replay.policies import (
    EXACT,
    POLICIES,
    RECORDINGS,
    Curve,
    WarmStart,
    find_recordings,
    policy_of,
    run,
)
from tuner.errors import TunerError
from tuner.record import Status
from tuner.replay.noise import NOISES, Noise
from tuner.replay.recording import Recording, fingerprint, load

ROOT = Path(__file__).parents[2]
_WITHIN = (1.05, 1.02)


def compare(
    recordings: Mapping[str, Recording],
    names: Sequence[str],
    policies: Sequence[str],
    *,
    trials: int,
    seeds: int,
    noise: Noise = NOISES["none"],
) -> dict[str, Any]:
    """Run every policy on every named task; the report that `--json` prints."""
    warm_start = WarmStart(recordings)
    points = [2**n for n in range(3, 30) if 2**n < trials] + [trials]
    tasks: dict[str, Any] = {}
    for name in names:
        recording = recordings[name]
        shown: dict[str, Any] = {"candidates": len(recording.rows) + sum(recording.refused)}
        shown["failed"] = shown["candidates"] - sum(r.status is Status.OK for r in recording.rows)
        shown["best_known_ms"] = recording.best_s * 1e3
        for policy in policies:
            curves = [
                run(recording, policy_of(policy), warm_start, trials=trials, seed=s, noise=noise)
                for s in range(seeds)
            ]
            shown[policy] = _summary(curves, points, trials)
        tasks[name] = shown
    return {
        "trials": trials,
        "seeds": seeds,
        "tasks": tasks,
        "geometric_mean_of_medians": {
            policy: {
                said: _geometric_mean([t[policy][said] for t in tasks.values()])
                for said in (*map(_within, _WITHIN), "choice")
            }
            for policy in policies
        },
    }


def _within(ratio: float) -> str:
    return f"trials_to_within_{round(100 * (ratio - 1))}_percent"


def _summary(curves: Sequence[Curve], points: Sequence[int], trials: int) -> dict[str, Any]:
    """Medians. Runs that did not get there count as one trial more than there were."""
    needed = {r: [min(curve.trials_to(r), trials + 1) for curve in curves] for r in _WITHIN}
    return {
        **{_within(ratio): statistics.median(n) for ratio, n in needed.items()},
        "least": min(needed[_WITHIN[0]]),
        "most": max(needed[_WITHIN[0]]),
        "reached": sum(n <= trials for n in needed[_WITHIN[0]]),
        "curve": {str(p): statistics.median(c.at(p) for c in curves) for p in points},
        "choice": statistics.median(c.choice for c in curves),
    }


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(math.log(v) for v in values) / len(values)) if values else math.nan


def golden(
    folder: Path, recordings: Mapping[str, Path], *, trials: int, seeds: int
) -> dict[str, Any]:
    """Exact curves of the policies that are equal on every machine, and what they are of."""
    loaded = {name: load(path) for name, path in recordings.items()}
    warm_start = WarmStart(loaded)
    return {
        "folder": folder.resolve().relative_to(ROOT).as_posix(),
        "trials": trials,
        "recordings": {p.name: fingerprint(p) for p in recordings.values()},
        "curves": {
            name: {
                policy: [
                    [
                        list(s)
                        for s in run(r, POLICIES[policy], warm_start, trials=trials, seed=s).steps
                    ]
                    for s in range(seeds)
                ]
                for policy in EXACT
            }
            for name, r in loaded.items()
        },
    }


def _named(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in POLICIES and ".py" not in name]:
        known = ", ".join(POLICIES)
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no policy: there are {known}")
    return names


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recordings", type=Path, default=RECORDINGS, metavar="DIR")
    parser.add_argument("--policy", type=_named, default=list(POLICIES), metavar="NAME,...")
    parser.add_argument("--task", default="*", metavar="GLOB")
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--noise", choices=NOISES, default="none", help="of each timing")
    parser.add_argument("--golden", type=Path, metavar="FILE", help="write the exact curves")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    try:
        paths = find_recordings(options.recordings)
    except TunerError as error:
        parser.error(str(error))
    if options.golden is not None:
        report = golden(options.recordings, paths, trials=options.trials, seeds=options.seeds)
        options.golden.write_text(json.dumps(report, separators=(",", ":")) + "\n")
        return 0
    names = [name for name in paths if fnmatch.fnmatchcase(name, options.task)]
    recordings = {name: load(path) for name, path in paths.items()}
    report = compare(
        recordings,
        names,
        options.policy,
        trials=options.trials,
        seeds=options.seeds,
        noise=NOISES[options.noise],
    )
    report["noise"] = options.noise
    print(json.dumps(report) if options.json else _table(report, options.policy))
    return 0


def _table(report: Mapping[str, Any], policies: Sequence[str]) -> str:
    """For each task and policy: trials to within 5 % and 2 % of the best, and the choice's ratio to
    the best."""
    said = (*map(_within, _WITHIN), "choice")
    lines = [f"{'trials to 5 %, 2 %; choice':28}" + "".join(f"{p:>24}" for p in policies)]
    rows = {**report["tasks"], "geometric mean": report["geometric_mean_of_medians"]}
    for name, row in rows.items():
        cells = ("{:.3g} {:.3g}  {:.3f}".format(*(row[p][s] for s in said)) for p in policies)
        lines.append(f"{name:28}" + "".join(f"{cell:>24}" for cell in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
