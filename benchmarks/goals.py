"""What this project set out to reach, and what the results say of it.

`table` puts each goal beside the figure of the file that measured it: nothing here is a result.
What is not reached has a line on what was learnt from trying.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import found

Result = Mapping[str, Any]
Look = Callable[[Result], float | None]

_LEAST, _MOST = operator.ge, operator.le


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure to reach.

    Attributes:
        result: name of the result's file, without its ending.
        look: finds the figure in the result; None where it has none.
        reaches: compares the figure with the goal.
        learnt: why it is not reached, where it is known.
    """

    what: str
    result: str
    look: Look
    reaches: Callable[[float, float], bool]
    goal: float
    learnt: str = ""


def at(path: str) -> Look:
    """The value at keys joined by dots."""

    def look(result: Result) -> float | None:
        value = found(result, path)
        return None if value is None else float(value)

    return look


def of_rows(how: Callable[[Sequence[float]], float], path: str) -> Look:
    """The largest, or another, of the values that rows have at keys joined by dots."""

    def look(result: Result) -> float | None:
        values = [value for row in result["rows"] if (value := at(path)(row)) is not None]
        return how(values) if values else None

    return look


def of_program(name: str, path: str) -> Look:
    """The value of one program's row."""

    def look(result: Result) -> float | None:
        rows = (row for row in result["rows"] if row["program"] == name)
        return next((at(path)(row) for row in rows), None)

    return look


def _first(values: Sequence[float]) -> float:
    return values[0]


def _peers() -> list[Goal]:
    stock, gemm = "versus_metaschedule-geomean", "versus_metaschedule-gemm-512"
    long = "versus_metaschedule-gemm-512-long"
    rate = "summary.rate_ratio.geometric_mean"
    warm_rate = "summary.rate_from_33_ratio.geometric_mean"
    blas = "versus_blas"
    compiling = (
        "LLVM takes 65 to 140 ms of a core for each kernel, ours as much as theirs, so that two "
        "cores make twenty a second at most"
    )
    return [
        Goal("trials/s over MetaSchedule's, GEMM 512", gemm, at(rate),
             _LEAST, 4, compiling),
        Goal("the same from trial 33 to the last of 512", long, at(warm_rate),
             _LEAST, 8, compiling),
        Goal("time to MetaSchedule's best over what it takes for 128 trials, from the start", stock,
             at("summary.time_to_their_best_from_start_to_their_end_ratio.at_least"), _MOST, 0.2),
        Goal("the same from the first trial", stock,
             at("summary.time_to_their_best_from_first_trial_to_their_end_ratio.at_least"), _MOST,
             0.05),
        Goal("time to MetaSchedule's best over when it found that, from the start", stock,
             at("summary.time_to_their_best_from_start_ratio.at_least"), _MOST, 0.2,
             "six seconds pass before the first trial: TVM is imported in six processes"),
        Goal("the same from the first trial", stock,
             at("summary.time_to_their_best_from_first_trial_ratio.at_least"), _MOST, 0.05,
             "where its best is the machine's peak, it takes a whole search to be level; where its "
             "first trials are its best, nobody is twenty times sooner"),
        Goal("latency over MetaSchedule's at equal trials", stock,
             at("summary.latency_ratio.geometric_mean"), _MOST, 0.5,
             "matrix products are near the machine's peak on both sides"),
        Goal("OpenBLAS over ours, geometric mean", blas, at("summary.products.geometric_mean"),
             _LEAST, 0.9),
        Goal("the same, the worst shape", blas, at("summary.products.least"), _LEAST, 0.75),
        *(
            Goal(f"latency over onnxruntime's: {model}", f"versus_onnxruntime-{model}",
                 at("summary.ratio"), _MOST, 1.0)
            for model in ("squeezenet", "resnet50", "encoder", "encoder-512", "encoder-2048")
        ),
        Goal("CPU ms of orchestration for each trial, once warm", long,
             of_rows(_first, "ours.cpu_ms_per_trial.from_33.orchestration"), _MOST, 10,
             "Ray's calls between search, space worker, builder and runner take 3 to 9 ms of each"),
        Goal("CPU ms of search for each trial, once warm", long,
             of_rows(_first, "ours.cpu_ms_per_trial.from_33.search"), _MOST, 30,
             "29 before: a schedule whose last rows have code of their own takes TVM 8 ms to write "
             "down, one with padding 5"),
        Goal("memory of a whole run, MB", "versus_onnxruntime-resnet50",
             at("summary.memory_mb.rss"), _MOST, 4096),
        Goal("bytes of memory-bound programs a second over a copy's, the worst", "memory_bound",
             at("summary.least"), _LEAST, 0.6,
             "a copy within a cache moves 16 floats in two cycles; a softmax of them takes ten"),
        Goal("float32 over int8, geometric mean", "int8", at("summary.geometric_mean"), _LEAST, 2),
    ]  # fmt: skip


def _dynamic() -> list[Goal]:
    def of(name: str, what: str, path: str, reaches: Any, goal: float, learnt: str = "") -> Goal:
        return Goal(f"{what}: {name}", "dynamic", of_program(name, path), reaches, goal, learnt)

    luck = (
        "128 trials of pairs find less good settings than 1,024 of single sizes: which size is the "
        "worst, and by how much, is luck"
    )
    few = (
        "a pair that is timed twice differs by up to 20 % where neighbours are busy; on a calmer "
        "machine predictions of eight sizes were off by 1, 11 and 4 %, those of fourteen earlier "
        "searches by 3 to 16 %, 9.9 in the mean"
    )
    builds = (
        "bound by builds: of 37 s nine are start and end, four finalists, and most of the rest is "
        "LLVM and TVM on sixty kernels whose guards make each three times as dear as a static one; "
        "31 to 47 s in a dozen searches, and 5.8 on a calmer machine"
    )
    between = (
        "dense had settled for a bad layout, and takes 1.07 (worst 1.14) since more of them are "
        "tried first; the worst size, T = 2, takes microseconds and has no copy that knows it"
    )
    goals = []
    for name in ("dense", "scores", "mixed"):
        goals += [
            of(name, "time to tune each size over ours", "wall_ratio", _LEAST, 6, builds),
            of(name, "latency over tuned alone, mean", "latency.over_static.mean", _MOST, 1.05,
               luck),
            of(name, "the same, worst size", "latency.over_static.worst", _MOST, 1.15, luck),
            of(name, "latency over OpenBLAS, mean", "latency.over_blas.mean", _MOST, 1.05),
            of(name, "predictions off by", "prediction_error", _MOST, 0.1, few),
        ]  # fmt: skip
    most = of_rows(max, "decision_us")
    layer = "dynamic_encoder"
    return [
        *goals,
        Goal("time to tune each length over ours: a transformer's layer", layer,
             at("summary.wall_ratio"), _LEAST, 6),
        Goal("latency over tuned alone, mean: a transformer's layer", layer,
             at("summary.over_static_mean"), _MOST, 1.05),
        Goal("the same, worst length: a transformer's layer", layer,
             at("summary.over_static_worst"), _MOST, 1.15),
        Goal("latency over onnxruntime's, mean: a transformer's layer", layer,
             at("summary.over_onnxruntime_mean"), _MOST, 1.05),
        Goal("microseconds to decide on a kernel", "dynamic", most, _MOST, 1),
        Goal("wrong sizes of 306 for each program", "dynamic", at("summary.errors"), _MOST, 0),
        Goal("time to tune each of 128 sizes over ours, the least", "dynamic-1-128",
             at("summary.wall_ratio"), _LEAST, 60),
        Goal("latency over tuned alone, mean, the worst of three programs of 128 sizes",
             "dynamic-1-128", at("summary.over_static_mean"), _MOST, 1.05, between),
        Goal("the same, worst size", "dynamic-1-128", at("summary.over_static_worst"), _MOST, 1.15,
             between),
        Goal("predictions of sizes that were not measured off by, the most", "dynamic-1-128",
             of_rows(max, "predicted.mean"), _MOST, 0.1, few),
    ]  # fmt: skip


def _fleet() -> list[Goal]:
    return [
        Goal("chaos: kills", "fleet-chaos", at("kills_total"), _LEAST, 100),
        Goal("chaos: records of 1,000 trials", "fleet-chaos", at("records"), _LEAST, 1000),
        Goal("chaos: twice", "fleet-chaos", at("duplicates"), _MOST, 0),
        Goal("chaos: LOST", "fleet-chaos", at("lost"), _MOST, 10),
        Goal("chaos: OK", "fleet-chaos", at("statuses.ok"), _LEAST, 950),
        Goal("chaos: of each kind", "fleet-chaos", _of_the_rarest_kind, _LEAST, 10),
        Goal("s until a killed search gives the next record, under fire, median", "fleet-chaos",
             at("search_back_median_s"), _MOST, 15),
        Goal("share of linear at 128 slots", "fleet-scale", _at_128_slots, _LEAST, 0.9),
        Goal("trials/s of the core alone", "fleet-scale", at("core_trials_per_s"), _LEAST, 800),
        Goal("MB after 100,000 records", "fleet-scale", at("memory.peak_mb"), _MOST, 2000),
        Goal("s from joining to work, median", "fleet-join", at("join_median_s"), _MOST, 10),
        Goal("s from leaving to requeue, median", "fleet-join", at("leave_median_s"), _MOST, 10),
        Goal("slots busy with a backlog", "fleet-slots", at("busy_with_backlog"), _LEAST, 0.95),
    ]  # fmt: skip


def _of_the_rarest_kind(result: Result) -> float | None:
    return min(result["kills"].values(), default=None)


def _at_128_slots(result: Result) -> float | None:
    return next((float(r["efficiency"]) for r in result["rows"] if r["slots"] == 128), None)


def _delivered() -> list[Goal]:
    return [
        Goal("a run's figure, `tuner bench`'s and a new process's: furthest apart", "as_user",
             at("summary.apart"), _MOST, 0.10,
             "with busy neighbours 2 to 12 %, as each side's own medians differ then"),
    ]  # fmt: skip


def _gpu() -> list[Goal]:
    best, proposals = "gpu_goals", "gpu_feasible"
    return [
        Goal("GPU: best predicted products that are multiplied by other instructions", best,
             at("summary.miss_instructions"), _MOST, 0,
             "Hopper's warpgroups take no bytes and no factors of TF32 whose rows lie next to one "
             "another, and none that are taken apart in registers: warps multiply these"),
        Goal("GPU: of these, with loads of fewer than 16 bytes", best, at("summary.miss_loads"),
             _MOST, 0, "where no row begins at a multiple of 16 bytes"),
        Goal("GPU: of these, with fewer than three stages", best, at("summary.miss_stages"),
             _MOST, 0),
        Goal("GPU: of these, that spill", best, at("summary.miss_spills"), _MOST, 0),
        Goal("GPU: of these, with a better predicted one that was refused", best,
             at("summary.miss_refused"), _MOST, 0),
        Goal("GPU: of these, with bank conflicts", best, at("summary.miss_bank_conflicts"), _MOST,
             0),
        Goal("GPU: FFMA of the innermost loop in float32, the least share", best,
             at("summary.least_ffma_share"), _LEAST, 0.85),
        Goal("GPU: CPU ms of a proposal, the mean of the slowest program", proposals,
             of_rows(max, "mean_cpu_ms"), _MOST, 20),
        Goal("GPU: drafts that give a proposal, the least share", proposals,
             of_rows(min, "proposed"), _LEAST, 0.95),
        Goal("GPU: proposals that are built, the least share", proposals,
             of_rows(min, "feasible"), _LEAST, 0.95,
             "of 144 nine spill registers, which is known once they are compiled"),
    ]  # fmt: skip


GOALS: tuple[Goal, ...] = (*_peers(), *_dynamic(), *_delivered(), *_fleet(), *_gpu())


def table(results: Mapping[str, Result]) -> list[str]:
    """Markdown lines.

    Args:
        results: by the names of their files.
    """
    lines = ["| what | goal | reached | |", "|---|---|---|---|"]
    for goal in GOALS:
        result = results.get(goal.result)
        value = None if result is None else goal.look(result)
        bound = f"{'at least' if goal.reaches is _LEAST else 'at most'} {goal.goal:g}"
        if value is None:
            lines.append(f"| {goal.what} | {bound} | not measured | |")
            continue
        there = goal.reaches(value, goal.goal)
        said = "yes" if there else f"**no**{': ' if goal.learnt else ''}{goal.learnt}"
        lines.append(f"| {goal.what} | {bound} | {value:.3g} | {said} |")
    return lines
