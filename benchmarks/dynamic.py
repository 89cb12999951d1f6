"""One tuning for all sizes against one for each: time to tune, speed, soundness.

    python -m benchmarks.dynamic --trials 128 --json
    python -m benchmarks.dynamic --program scores --sizes 1..128 --sample 8 --json
    python -m benchmarks.dynamic --max-kernels 2 --repeats 1 --out result.json

Programs are those of `benchmarks.dynamic_programs`: a dense layer and both products of attention,
with T open. Ours is one run of `tuner tune --dim T=...` with at most `--trials` trials, finalists
timed on top. It takes half a minute, which others on the machine can spoil, so there are
`--repeats` of it, with the seeds from `--seed` on, one of them before the other side is at work;
their median is what counts. The other side is one run of the same tuner on the static programs,
with as many trials for each; where `--sizes` are more than `--sample`, it tunes a sample of them,
and its wall time counts for as many as there are. Where they are also more than a search measures,
the sample has only sizes that it did not.

Then one process runs, for each size that was tuned alone, four things in turns: the kernel tuned
for that size, our first library with its dispatcher, the same library once more, and NumPy's BLAS.
`unrest` is how far the library is from itself; sizes where that is more than 5 % are raced again,
twice at most. `over_static` and `over_blas` are our time over theirs, of medians; below 1 ours is
faster. Last, the library is run on every T from 0 to 300 and on some primes beyond, and compared
with NumPy.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks import our_side
from benchmarks.command import Rows, common_flags, cores_of, run_main, say, workplace
from benchmarks.figures import ratio, spread
from benchmarks.our_side import OurRun
from benchmarks.race import Contestant, Library, NumpyMatmul, Ours, run_race
from cluster.app.console import parse
from cluster.app.driver.export import export_library
from cluster.app.driver.kernel_sets import kernel_set
from spaces.targets.cores import thread_variables
from tuner import checks
from tuner.dynamic.kernel_set import KernelSet
from tuner.dynamic.shapes import choose_measured, joint, sample_shapes
from tuner.errors import TunerError
from tuner.process.child import Child
from tuner.process.outcome import Returned
from tuner.runs.folder import RunFolder
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Instance, Task
from tuner.view.winners import choose_best

PROGRAMS = ("dense", "scores", "mixed")
DIETCODE = "5,24,43,62,81,100,119,128"
_FILE = Path(__file__).with_name("dynamic_programs.py")
_BEYOND = (307, 401, 509, 701, 997)
_RACE_LIMIT_S = 900.0
_CHECK_LIMIT_S = 1800.0
_READY_S = 120.0
_CALM, _RACES = 0.05, 3


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compare on each program."""
    _, sizes = parse.dimension(f"T={options.sizes}")
    alone = sizes_alone(sizes, options.sample)
    target, cores = cores_of(options.target)
    settings = {
        "sizes": options.sizes,
        "alone": alone,
        "trials": options.trials,
        "max_kernels": options.max_kernels,
        "repeats": options.repeats,
        "seed": options.seed,
        "cores": cores,
        "target": target,
    }
    rows = Rows(options.out, settings)
    for program in options.program or PROGRAMS:
        if rows.has({"program": program}):
            continue
        say(program)
        with workplace(options.run) as folder:
            rows.add(_row(program, options, folder, alone, len(sizes), cores, target))
    return rows.finish(summary(rows.rows))


def sizes_alone(sizes: Sequence[int], most: int) -> list[int]:
    """Sizes to tune alone, spread over all; none that a search measured, if it did not all."""
    shapes = joint([("T", tuple(sizes))])
    measured = {instance for instance, _ in choose_measured(shapes)}
    others = tuple(shape for shape in shapes if shape[0] not in measured)
    return [dict(instance)["T"] for instance, _ in sample_shapes(others or shapes, most)]


def _row(
    program: str,
    options: argparse.Namespace,
    folder: Path,
    alone: Sequence[int],
    count: int,
    cores: int,
    target: str,
) -> dict[str, Any]:
    model = f"{_FILE}:{program}"
    limit_s = checks.duration_s(options.limit)
    common: dict[str, Any] = {"limit_s": limit_s, "target": target, "seed": options.seed}
    # What has to be read from disk is read before: after minutes of a race that is some seconds,
    # and the first side alone would pay for them.
    our_side.tune_once((model, "--arg=sizes=8"), folder / f"{program}-first", trials=2, **common)
    flags = ("--dim", f"T={options.sizes}", "--max-kernels", str(options.max_kernels))

    def tune_open(repeat: int) -> OurRun:
        settings = {**common, "trials": options.trials, "seed": options.seed + repeat}
        run = folder / f"{program}-{settings['seed']}"
        return our_side.tune_once((model, *flags), run, **settings)

    open_run = tune_open(0)
    sizes = ",".join(map(str, alone))
    specialised_run = our_side.tune_once(
        (model, f"--arg=sizes={sizes}"),
        folder / f"{program}-alone",
        trials=options.trials * len(alone),
        **common,
    )
    repeats = [open_run, *(tune_open(repeat) for repeat in range(1, options.repeats))]
    failure = specialised_run.failure or next((run.failure for run in repeats if run.failure), "")
    if failure:
        return {"program": program, "failure": failure}
    library = folder / f"{program}.so"
    export_library(open_run.folder, library)
    per_shape_s = specialised_run.watched.wall_s / len(alone)
    wall_s = statistics.median(run.watched.wall_s for run in repeats)
    sets = [_chosen(run, options.max_kernels) for run in repeats]
    told = [
        {"wall_s": run.watched.wall_s, **_told(chosen)}
        for run, chosen in zip(repeats, sets, strict=True)
    ]
    shapes = predicted(_races(program, specialised_run, library, cores, options.rounds), sets[0])
    checked = _checked(library, program, cores, sets[0])
    return {
        "program": program,
        "failure": "",
        "wall_s": wall_s,
        "repeats": told,
        "trials": len(open_run.trials),
        "alone_wall_s": specialised_run.watched.wall_s,
        "alone_trials": len(specialised_run.trials),
        "wall_ratio": per_shape_s * count / wall_s,
        "library_bytes": library.stat().st_size,
        "kernel_set": _told(sets[0]),
        "prediction_error": mean_error(told),
        "shapes": shapes,
        "latency": weighed(shapes),
        "predicted": predicted_error(shapes),
        **checked,
    }


def _chosen(run: OurRun, most: int) -> KernelSet:
    with closing(SqliteStore(RunFolder(run.folder).store, read_only=True)) as store:
        chosen = kernel_set(store, store.tasks()[0], most)
    if chosen is None:
        raise TunerError(f"{run.folder} has no kernels: nothing was measured")
    return chosen


def _told(chosen: KernelSet) -> dict[str, Any]:
    """What is to be said of the kernels, without their schedules."""
    return {
        "kernels": len(chosen.kernels),
        "losses": list(chosen.losses),
        "loss": chosen.loss,
        "prediction_error": chosen.error,
        "predictions_judged": chosen.judged,
    }


def mean_error(told: Sequence[Mapping[str, Any]]) -> float | None:
    """How far predictions were off, over all tunings; None where none could be judged."""
    known = [run["prediction_error"] for run in told if run["prediction_error"] is not None]
    return statistics.fmean(known) if known else None


def _races(
    program: str, ours: OurRun, library: Path, cores: int, rounds: int
) -> list[dict[str, Any]]:
    with closing(SqliteStore(RunFolder(ours.folder).store, read_only=True)) as store:
        winners = [(task, choose_best(store, task.key)) for task in store.tasks()]
    found = []
    for task, record in winners:
        if record is None:
            continue
        static = Ours(task, record.trial.candidate, name="static")
        blas = NumpyMatmul(transpose_b=program == "scores")
        same = [Library(library, program, name) for name in ("ours", "again")]
        sides: tuple[Contestant, ...] = (static, *same, blas)
        races: list[dict[str, Any]] = []
        while len(races) < _RACES and not (races and races[-1].get("unrest", 0.0) <= _CALM):
            races.append(_race(task, sides, ours.folder, cores, rounds))
        calmest = min(races, key=lambda row: row.get("unrest", 0.0))
        found.append({**calmest, "raced": len(races)})
    return found


def _race(
    task: Task, sides: Sequence[Contestant], folder: Path, cores: int, rounds: int
) -> dict[str, Any]:
    race = run_race(
        task,
        sides,
        cores=cores,
        rounds=rounds,
        log=folder / "race.log",
        limit_s=_RACE_LIMIT_S,
        cache=RunFolder(folder).scratch / "references",
    )
    samples = race.samples_s
    row: dict[str, Any] = {
        "T": int(task.name.rpartition("_")[2]),
        "failure": race.failure or "; ".join(f"{n}: {why}" for n, why in race.failed.items()),
    }
    for name, seconds in samples.items():
        row[f"{name}_ms"] = spread(seconds, scale=1e3)
    if {"ours", "again", "static", "blas"} <= samples.keys():
        row["over_static"] = ratio(samples["ours"], samples["static"])
        row["over_blas"] = ratio(samples["ours"], samples["blas"])
        row["unrest"] = abs(ratio(samples["again"], samples["ours"])["of_medians"] - 1)
    return row


def predicted(shapes: Sequence[dict[str, Any]], chosen: KernelSet) -> list[dict[str, Any]]:
    """Races with what the tuner says of their sizes, and whether it had measured that."""
    known = {_size(times.instance): times for times in chosen.shapes}
    return [
        {
            **row,
            "predicted_ms": known[row["T"]].latency_s * 1e3,
            "was_measured": known[row["T"]].measured,
        }
        for row in shapes
    ]


def _size(instance: Instance) -> int:
    """T, of a shape of one dimension that is T or a multiple of it, such as `T_x16`."""
    ((name, value),) = instance
    return value // int(name.partition("_x")[2] or 1)


def predicted_error(shapes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How far off it was where it had not measured, as a share of what the race measured."""
    off = [
        abs(row["predicted_ms"] / row["ours_ms"]["median"] - 1)
        for row in shapes
        if "ours_ms" in row and not row["was_measured"]
    ]
    return {"mean": statistics.fmean(off) if off else None, "of": len(off)}


def weighed(shapes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means and worst of the ratios over the sizes, each size of equal weight."""
    result: dict[str, Any] = {"failed": sum(bool(s["failure"]) for s in shapes)}
    for name in ("over_static", "over_blas"):
        known = [s[name]["of_medians"] for s in shapes if name in s]
        result[name] = {
            "mean": statistics.fmean(known) if known else None,
            "worst": max(known, default=None),
            "of": len(known),
        }
    return result


def _checked(library: Path, program: str, cores: int, chosen: KernelSet) -> dict[str, Any]:
    """Errors over all sizes, and the cost of the decision."""
    sizes = [*range(301), *_BEYOND]
    env = {**thread_variables(cores), "OPENBLAS_NUM_THREADS": str(cores)}
    with Child("benchmarks.dynamic_check:Checker", (library, program), env=env) as child:
        child.ready(_READY_S)
        errors = child.call("errors", sizes, deadline_s=_CHECK_LIMIT_S)
        parts = (chosen.tree, len(chosen.kernels))
        cost = child.call("decision_us", *parts, deadline_s=_CHECK_LIMIT_S)
    return {
        "sizes_checked": len(sizes),
        "errors": errors.value if isinstance(errors, Returned) else [str(errors)],
        "decision_us": cost.value if isinstance(cost, Returned) else str(cost),
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The worst of each number."""
    good = [row for row in rows if not row["failure"]]
    if not good:
        return {"failed": len(rows)}
    return {
        "failed": len(rows) - len(good),
        "wall_ratio": min(row["wall_ratio"] for row in good),
        "over_static_mean": max(row["latency"]["over_static"]["mean"] for row in good),
        "over_static_worst": max(row["latency"]["over_static"]["worst"] for row in good),
        "over_blas_mean": max(row["latency"]["over_blas"]["mean"] for row in good),
        "errors": sum(len(row["errors"]) for row in good),
    }


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.dynamic",
        description="Symbolic dimensions against one tuning for each size.",
    )
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="default: all")
    parser.add_argument("--sizes", default=DIETCODE, help="of T, as for --dim")
    parser.add_argument("--sample", type=int, default=8, help="sizes tuned alone, at most")
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--max-kernels", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3, help="tunings of all sizes at once")
    parser.add_argument("--run", type=Path, help="folder for the runs; those there are continued")
    common_flags(parser, limit="1h")
    run_main(parser, measure)


if __name__ == "__main__":
    main()
