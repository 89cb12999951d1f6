"""Programs that memory bounds: how near they come to the speed of a copy.

    python -m benchmarks.memory_bound --json [--trials 64] [--only softmax] [--out result.json]

Softmax, layer norm, reductions, pooling and a chain of elementwise operators (the suite `memory`)
are tuned one by one with `tuner tune`. Then one process runs each winner and copies of memory in
turns, with the same number of threads. What a program moves is counted as compulsory: every input
and output once, whatever it does. It is compared with

- `share`: the fastest of three ways to copy the same number of bytes, reads and writes together,
  (`benchmarks.copies`), so that what fits into a cache is compared with a copy within that cache;
- `share_of_large`: the fastest copy of 512 MB, which no cache holds. A program whose data stay in
  a cache may well be above 1.

Both are bytes of ours in a second over bytes of the copy in a second; 1 is the copy's speed.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import our_side
from benchmarks.command import Rows, common_flags, cores_of, run_main, settings_of, workplace
from benchmarks.copies import LARGE_BYTES, WAYS, Copy
from benchmarks.figures import ratio, spread, summed_up
from benchmarks.our_side import OurRun, race_of_winner
from benchmarks.race import Race
from benchmarks.suites import Workload, parsed, suite
from tuner import checks
from tuner.errors import UsageError


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compare each program."""
    chosen = _chosen(options)
    target, cores = cores_of(options.target)
    settings = {**settings_of(options, target, cores), "large_bytes": LARGE_BYTES}
    rows = Rows(options.out, settings)
    for _, workload in rows.missing(chosen):
        with workplace(options.run) as folder:
            ours = our_side.tune_workload(
                workload,
                folder / workload.file_name,
                limit_s=checks.duration_s(options.limit),
                trials=options.trials,
                target=target,
                seed=options.seed,
            )
            against = copies(target, cores)
            race = race_of_winner(ours, against, cores=cores, rounds=options.rounds)
        rows.add(row(workload, ours, race, moved_bytes(workload)))
    return rows.finish(summary(rows.rows))


def _chosen(options: argparse.Namespace) -> tuple[Workload, ...]:
    if options.workload:
        return (parsed(options.workload, options.arg),)
    chosen = tuple(w for w in suite("memory") if options.only in (None, w.name))
    if not chosen:
        raise UsageError(f"--only {options.only}: the suite has no such program")
    return chosen


def copies(target: str, cores: int) -> list[Copy]:
    """What it is compared with: copies of the same size, and of far more than the caches hold."""
    return [Copy(way, cores, target, size) for size in (0, LARGE_BYTES) for way in WAYS]


def moved_bytes(workload: Workload) -> int:
    """What a program moves at least. Imports TVM."""
    from benchmarks.copies import footprint_bytes
    from spaces.check.draws import arguments

    return footprint_bytes(arguments(workload.prim_func()))


def row(workload: Workload, ours: OurRun, race: Race, moved: int) -> dict[str, Any]:
    """What to report of one program."""
    samples = race.samples_s
    result: dict[str, Any] = {
        **workload.to_json(),
        "label": workload.label,
        "bytes": moved,
        "trials": len(ours.trials),
        "failure": ours.failure or race.failure,
        "failed": race.failed,
        "share": None,
        "share_of_large": None,
    }
    if "ours" not in samples:
        return result
    result["ours_ms"] = spread(samples["ours"], scale=1e3)
    result["ours_gb_per_s"] = moved / result["ours_ms"]["median"] / 1e6
    if (best := _fastest(samples, WAYS)) is not None:
        result["copy"] = best
        result["copy_gb_per_s"] = moved / statistics.median(samples[best]) / 1e9
        # The copy's bytes are rounded to whole vectors, which is nothing.
        result["share"] = ratio(samples[best], samples["ours"])
    if (best := _fastest(samples, [f"large {way}" for way in WAYS])) is not None:
        result["large_copy"] = best
        result["large_copy_gb_per_s"] = LARGE_BYTES / statistics.median(samples[best]) / 1e9
        result["share_of_large"] = result["ours_gb_per_s"] / result["large_copy_gb_per_s"]
    return result


def _fastest(samples: Mapping[str, Sequence[float]], names: Sequence[str]) -> str | None:
    known = [name for name in names if name in samples]
    return min(known, key=lambda name: statistics.median(samples[name]), default=None)


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Geometric mean and least share."""
    return summed_up([r["share"] for r in rows])


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.memory_bound", description="Memory-bound programs against a copy."
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--only", help="the programs of this name in the suite `memory`")
    what.add_argument("--workload", help="one function of benchmarks.workloads instead")
    parser.add_argument("--arg", action="append", default=[], metavar="rows=512")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--run", type=Path, help="folder for the runs; those there are continued")
    common_flags(parser, limit="30m")
    run_main(parser, measure)


if __name__ == "__main__":
    main()
