"""Products of matrices: ours against the BLAS that NumPy brings, in turns.

    python -m benchmarks.versus_blas --trials 256 --json
    python -m benchmarks.versus_blas --shape 512,512,512 --shape 12,128,128,64,tb --json
    python -m benchmarks.versus_blas --time-budget 2m --run runs/blas --out result.json

Without `--shape`: the suite `blas`, ten products from 64 to 2048, four of them of odd sizes, and
some batches of products. Each is tuned by itself with `tuner tune`, within `--trials` or
`--time-budget` or both. Then one process runs our winner and `np.matmul(a, b, out=c)` in turns, on
the same inputs and with the same number of threads (OPENBLAS_NUM_THREADS is set before NumPy is
loaded). Both outputs are compared with that of the unscheduled program. Neither side packs
anything ahead: both operands are inputs. A transposed operand is a transposed view to NumPy,
which BLAS takes as it is.

`ratio` is the time of BLAS over ours, of medians; above 1 ours is faster.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import our_side
from benchmarks.command import Rows, common_flags, cores_of, run_main, workplace
from benchmarks.figures import ratio, spread, summed_up
from benchmarks.our_side import OurRun, race_of_winner
from benchmarks.race import NumpyMatmul, Race
from benchmarks.suites import Workload, gemm_shape, suite
from tuner import checks

_USUAL_TRIALS = 256


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compare on each shape."""
    shapes = tuple(map(gemm_shape, options.shape)) or suite("blas")
    target, cores = cores_of(options.target)
    budget_s = checks.duration_s(options.time_budget) if options.time_budget else None
    trials = options.trials or (None if budget_s else _USUAL_TRIALS)
    settings = {
        "trials": trials,
        "time_budget_s": budget_s,
        "seed": options.seed,
        "cores": cores,
        "target": target,
        "blas": blas_name(),
    }
    rows = Rows(options.out, settings)
    for _, workload in rows.missing(shapes):
        with workplace(options.run) as folder:
            run = folder / shape_name(workload)
            ours = our_side.tune_workload(
                workload,
                run,
                limit_s=checks.duration_s(options.limit),
                trials=trials,
                time_budget_s=budget_s,
                target=target,
                seed=options.seed,
            )
            blas = [numpy_matmul(workload)]
            race = race_of_winner(ours, blas, cores=cores, rounds=options.rounds)
        rows.add(row(workload, ours, race))
    return rows.finish(summary(rows.rows))


def numpy_matmul(workload: Workload) -> NumpyMatmul:
    """The other side of a product."""
    args = dict(workload.args)
    return NumpyMatmul(bool(args.get("transpose_a")), bool(args.get("transpose_b")))


def row(workload: Workload, ours: OurRun, race: Race) -> dict[str, Any]:
    """What to report of one shape."""
    samples, flops = race.samples_s, flops_of(workload)
    result: dict[str, Any] = {
        **workload.to_json(),
        "shape": shape_name(workload),
        "trials": len(ours.trials),
        "wall_s": ours.watched.wall_s,
        "failure": ours.failure or race.failure,
        "failed": race.failed,
    }
    for name in samples:
        result[f"{name}_ms"] = spread(samples[name], scale=1e3)
        result[f"{name}_gflops"] = flops / result[f"{name}_ms"]["median"] / 1e6
    both = {"ours", "blas"} <= samples.keys()
    result["ratio"] = ratio(samples["blas"], samples["ours"]) if both else None
    return result


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Geometric mean and least ratio, of single products and of batches."""
    result: dict[str, Any] = {}
    for kind, name in (("gemm", "products"), ("batch_gemm", "batches")):
        of_kind = [r for r in rows if r["workload"] == kind]
        result[name] = summed_up([r["ratio"] for r in of_kind])
    return result


def flops_of(workload: Workload) -> float:
    """Floating point operations of a product or a batch of them."""
    args = dict(workload.args)
    return 2.0 * args["m"] * args["n"] * args["k"] * args.get("b", 1)


def shape_name(workload: Workload) -> str:
    """As `512x512x512`, `12x128x128x64-tb`; m, n, k in order."""
    args = dict(workload.args)
    sizes = "x".join(str(args[key]) for key in "bmnk" if key in args)
    return sizes + "".join(f"-t{key}" for key in "ab" if args.get(f"transpose_{key}"))


def blas_name() -> str:
    """Which BLAS NumPy was built with."""
    import numpy as np

    build = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{build['name']} {build['version']}, numpy {np.__version__}"


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.versus_blas", description="Matrix products against NumPy's BLAS."
    )
    parser.add_argument("--shape", action="append", default=[], metavar="m,n,k|b,m,n,k[,ta|,tb]")
    parser.add_argument("--trials", type=int, help=f"for each; default {_USUAL_TRIALS}")
    parser.add_argument("--time-budget", metavar="2m", help="for each shape")
    parser.add_argument("--run", type=Path, help="folder for the runs; those there are continued")
    common_flags(parser, limit="1h")
    run_main(parser, measure)


if __name__ == "__main__":
    main()
