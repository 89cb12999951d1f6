"""int8 matrix products against float32 ones, both ours, in turns.

    python -m benchmarks.int8 --trials 128 --json
    python -m benchmarks.int8 --shape 512,512,512 --out result.json

Without `--shape`: four products from 128 to 1024, one of odd sizes. Of each, `gemm` (float32) and
`gemm_int8` (uint8 times int8 into int32) are tuned alone with the same number of trials, weights
known ahead or not alike. Then one process runs the two winners in turns, on as many threads; the
output of each is compared with that of its own unscheduled program, bytes exactly.

`ratio` is the time of floats over bytes, of medians; above 1 bytes are faster.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks import our_side
from benchmarks.command import Rows, common_flags, cores_of, run_main, settings_of, workplace
from benchmarks.figures import ratio, spread, summed_up
from benchmarks.our_side import OurRun, race_of_winner
from benchmarks.race import OtherProgram, Ours, Race
from benchmarks.suites import Workload, gemm_shape, workload
from tuner import checks
from tuner.errors import UsageError

_SHAPES = ("128,128,128", "512,512,512", "509,331,203", "1024,1024,1024")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compare on each shape."""
    shapes = tuple(map(gemm_shape, options.shape or _SHAPES))
    if any(shape.name != "gemm" for shape in shapes):
        raise UsageError("--shape: give m,n,k")
    target, cores = cores_of(options.target)
    settings = settings_of(options, target, cores)
    rows = Rows(options.out, settings)
    for _, floats in rows.missing(shapes):
        with workplace(options.run) as folder:
            of_floats, of_bytes = (
                our_side.tune_workload(
                    tuned,
                    folder / tuned.file_name,
                    limit_s=checks.duration_s(options.limit),
                    trials=options.trials,
                    target=target,
                    seed=options.seed,
                )
                for tuned in (floats, workload("gemm_int8", floats.args))
            )
            race = _race(of_floats, of_bytes, cores=cores, rounds=options.rounds)
        rows.add(row(floats, of_floats, of_bytes, race))
    return rows.finish(summed_up([r["ratio"] for r in rows.rows]))


def _race(floats: OurRun, integers: OurRun, *, cores: int, rounds: int) -> Race:
    if floats.winner is None:
        return Race("floats have no winner", {}, {})
    others = [OtherProgram(Ours(floats.winner.task, floats.winner.record.trial.candidate), "float")]
    return race_of_winner(integers, others, cores=cores, rounds=rounds)


def row(floats: Workload, of_floats: OurRun, of_bytes: OurRun, race: Race) -> dict[str, Any]:
    """What to report of one shape."""
    samples = race.samples_s
    found: dict[str, Any] = {
        **floats.to_json(),
        "trials": len(of_bytes.trials),
        "failure": of_floats.failure or of_bytes.failure or race.failure,
        "failed": race.failed,
    }
    for name, key in (("float", "float_ms"), ("ours", "int8_ms")):
        if name in samples:
            found[key] = spread(samples[name], scale=1e3)
    both = {"ours", "float"} <= samples.keys()
    found["ratio"] = ratio(samples["float"], samples["ours"]) if both else None
    return found


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.int8", description="int8 matrix products against float32 ones."
    )
    parser.add_argument("--shape", action="append", default=[], metavar="M,N,K")
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--run", type=Path, help="folder for the runs; those there are continued")
    common_flags(parser, limit="30m")
    run_main(parser, measure)


if __name__ == "__main__":
    main()
