"""Writes RESULTS.md, and the table of docs/comparison.md, from the raw results.

    python -m benchmarks.page

Every JSON file in `benchmarks/results/` is what a benchmark printed with `--json` or wrote with
`--out`, and so are those in `gpu/` that are made without a GPU; the page says nothing that is not
in them. A file is named after its benchmark; what comes after a dash tells several results of one
benchmark apart, as in `versus_onnxruntime-resnet50`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import in_short
from benchmarks.figures import found
from benchmarks.goals import table

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent / "RESULTS.md"
COMPARISON = Path(__file__).parents[1] / "docs" / "comparison.md"

_SAYS = {
    "throughput": "A GEMM tuned from scratch: rate, result and memory (`benchmarks.throughput`)",
    "startup": "How long it takes to begin (`benchmarks.startup`)",
    "references": "What large tasks wait for: all outputs or some (`benchmarks.references`)",
    "quiet": "A/A test of the quiet lock (`benchmarks.quiet`)",
    "resume": "Kill -9 at random moments (`benchmarks.resume`)",
    "replay": "Search policies on recorded spaces (`benchmarks.replay`)",
    "demo": "The demo: untuned, tuned and onnxruntime (`tuner bench runs/demo --json`)",
    "versus_metaschedule": "Against MetaSchedule (`benchmarks.versus_metaschedule`)",
    "versus_blas": "Matrix products against OpenBLAS (`benchmarks.versus_blas`)",
    "versus_onnxruntime": "A model against onnxruntime (`benchmarks.versus_onnxruntime`)",
    "int8": "int8 matrix products against float32 ones, both ours (`benchmarks.int8`)",
    "memory_bound": "Memory-bound programs against a copy (`benchmarks.memory_bound`)",
    "dynamic": "One tuning for all sizes against one for each (`benchmarks.dynamic`)",
    "dynamic_encoder": "The same for a transformer's layer (`benchmarks.dynamic_encoder`)",
    "as_user": "What a run measured and what a user of its library gets (`benchmarks.as_user`)",
    "fleet": "A fleet that grows, shrinks and breaks (`benchmarks.fleet`)",
    "gpu_feasible": "Proposals for a GPU (`benchmarks.gpu.feasible`)",
    "gpu_goals": "The best predicted products on a GPU, as compiled (`benchmarks.gpu.goals`)",
}

_OF_GPUS = ("gpu_feasible", "gpu_goals")

Columns = Sequence[tuple[str, str]]
"""Head of each column, and where in a row its value is, keys joined by dots."""

_COLUMNS: dict[str, Columns] = {
    "versus_metaschedule": (
        ("program", "workload"),
        ("arguments", "args"),
        ("ours ms", "race.ours_ms"),
        ("theirs ms", "race.metaschedule_ms"),
        ("ours / theirs", "race.ratio"),
        ("trials", "ours.trials"),
        ("theirs", "metaschedule.trials"),
        ("trials/s", "ours.trials_per_s"),
        ("theirs", "metaschedule.trials_per_s"),
        ("ratio", "rate_ratio"),
        ("ratio from 33", "rate_ratio_from_33"),
        ("s to their best", "time_to_their_best.ours.from_start_s"),
        ("theirs", "time_to_their_best.metaschedule.from_start_s"),
        ("ratio", "time_to_their_best.ratio.from_start"),
        ("ratio to their end", "time_to_their_best.ratio.from_start_to_their_end"),
        ("ratio from first trial", "time_to_their_best.ratio.from_first_trial"),
        (
            "ratio from first trial to their end",
            "time_to_their_best.ratio.from_first_trial_to_their_end",
        ),
        ("memory MB", "ours.memory_mb.rss"),
        ("orchestration ms", "ours.cpu_ms_per_trial.from_33.orchestration"),
        ("search ms", "ours.cpu_ms_per_trial.from_33.search"),
        ("failure", "ours.failure"),
        ("theirs", "metaschedule.failure"),
        ("race", "race.failure"),
        ("not in the race", "race.failed"),
    ),
    "versus_blas": (
        ("shape", "shape"),
        ("ours ms", "ours_ms"),
        ("BLAS ms", "blas_ms"),
        ("GFLOPS", "ours_gflops"),
        ("BLAS", "blas_gflops"),
        ("BLAS / ours", "ratio"),
        ("trials", "trials"),
        ("failure", "failure"),
        ("not in the race", "failed"),
    ),
    "int8": (
        ("arguments", "args"),
        ("float32 ms", "float_ms"),
        ("int8 ms", "int8_ms"),
        ("float32 / int8", "ratio"),
        ("trials", "trials"),
        ("failure", "failure"),
        ("not in the race", "failed"),
    ),
    "versus_onnxruntime": (
        ("task", "task"),
        ("times", "weight"),
        ("ms", "latency_ms"),
        ("share ms", "share_ms"),
        ("GFLOPS", "gflops"),
        ("trials", "trials"),
    ),
    "dynamic": (
        ("program", "program"),
        ("s to tune", "wall_s"),
        ("s to tune alone", "alone_wall_s"),
        ("ratio", "wall_ratio"),
        ("trials", "trials"),
        ("alone", "alone_trials"),
        ("kernels", "kernel_set.kernels"),
        ("loss by kernels", "kernel_set.losses"),
        ("predictions off by", "kernel_set.prediction_error"),
        ("of all repeats", "prediction_error"),
        ("in the race", "predicted.mean"),
        ("ours / alone, mean", "latency.over_static.mean"),
        ("worst", "latency.over_static.worst"),
        ("ours / BLAS, mean", "latency.over_blas.mean"),
        ("worst", "latency.over_blas.worst"),
        ("sizes checked", "sizes_checked"),
        ("errors", "errors"),
        ("us to decide", "decision_us"),
        ("library bytes", "library_bytes"),
        ("failure", "failure"),
    ),
    "dynamic_encoder": (
        ("tokens", "sequence"),
        ("ours ms", "ours_ms"),
        ("alone ms", "static_ms"),
        ("onnxruntime ms", "onnxruntime_ms"),
        ("ours / alone", "over_static"),
        ("ours / onnxruntime", "over_onnxruntime"),
        ("ours / ours", "unrest"),
        ("s to tune alone", "alone_wall_s"),
        ("trials alone", "alone_trials"),
        ("failure", "failure"),
    ),
    "as_user": (
        ("program", "program"),
        ("sizes", "shape"),
        ("as a run ms", "run_ms"),
        ("tuner bench ms", "bench_ms"),
        ("a user's process ms", "user_ms"),
        ("user / run", "user_over_run"),
        ("user / bench", "user_over_bench"),
        ("apart", "apart"),
        ("recorded ms", "recorded_ms"),
        ("threads", "threads"),
        ("failure", "failure"),
    ),
    "references": (
        ("program", "program"),
        ("steps", "steps"),
        ("some elements s", "some_s"),
        ("all outputs s", "whole_s"),
        ("what a run does", "now"),
    ),
    "fleet": (
        ("slots", "slots"),
        ("trials", "trials"),
        ("trials/s", "trials_per_s"),
        ("of what they could do", "efficiency"),
        ("the search's CPU ms for each", "search_cpu_ms_per_trial"),
    ),
    "gpu_goals": (
        ("kind", "kind"),
        ("device", "arch"),
        ("layout", "layout"),
        ("sizes", "sizes"),
        ("us, predicted", "predicted_us"),
        ("TFLOPS, predicted", "predicted_tflops"),
        ("tensor instructions", "tensor_instructions"),
        ("loads", "loads"),
        ("stages", "stages"),
        ("registers", "registers"),
        ("bytes spilled", "spilled_bytes"),
        ("bank conflicts", "bank_conflicts"),
        ("FFMA", "ffma_share"),
        ("refused before", "refused"),
        ("misses", "misses"),
    ),
    "memory_bound": (
        ("program", "label"),
        ("bytes", "bytes"),
        ("ours ms", "ours_ms"),
        ("GB/s", "ours_gb_per_s"),
        ("copy", "copy"),
        ("GB/s", "copy_gb_per_s"),
        ("share", "share"),
        ("share of a large copy", "share_of_large"),
        ("failure", "failure"),
        ("not in the race", "failed"),
    ),
}


def read_results(results: Path = RESULTS) -> dict[str, Any]:
    """The results in a folder, by the names of their sections."""
    paths = {path.stem: path for path in sorted(results.glob("*.json"))}
    of_gpus = {name: results / "gpu" / f"{name.removeprefix('gpu_')}.json" for name in _OF_GPUS}
    paths |= {name: path for name, path in of_gpus.items() if path.exists()}
    return {name: json.loads(path.read_text()) for name, path in paths.items()}


def page(results: Path = RESULTS) -> str:
    """The text of the page, from the JSON files of a folder."""
    parts = [
        "# Results\n",
        "Made by `python -m benchmarks.page` from the JSON files in `results/`. Absolute times "
        "are one machine's on one day; what carries over are the ratios of one run. Brackets hold "
        "quartiles.\n",
    ]
    found = read_results(results)
    if found:
        parts += ["## Goals\n", *table(found), ""]
    for name, result in found.items():
        parts += section(name, result)
    return "\n".join(parts)


def section(stem: str, result: dict[str, Any]) -> list[str]:
    """The lines of one result, from its file's name without the ending."""
    name, _, which = stem.partition("-")
    title = _SAYS.get(name, name) + (f": {which}" if which else "")
    lines = [f"## {title}\n"]
    if (machine := result.pop("machine", None)) is not None:
        lines.append(", ".join(str(value) for value in machine.values()) + "\n")
    rows = result.pop("rows", None)
    result = {**result.pop("settings", {}), **result.pop("summary", {}), **result}
    lines.append("| what | figure |\n|---|---|")
    lines.append("\n".join(f"| {key} | {_show(value)} |" for key, value in _flat(result)))
    lines.append("")
    if rows and name in _COLUMNS:
        lines += [*_table(_COLUMNS[name], rows), ""]
    elif rows:
        keys = dict.fromkeys(key for row in rows for key in row)
        lines += [*_table([(key, key) for key in keys], rows), ""]
    return lines


def _table(columns: Columns, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows as a table; columns of failures only where there is one."""
    told = [c for c in columns if "fail" not in c[1] or any(found(r, c[1]) for r in rows)]
    lines = [f"| {' | '.join(head for head, _ in told)} |", "|" + "---|" * len(told)]
    for row in rows:
        cells = [_show(found(row, at)) for _, at in told]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _flat(result: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in result.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{name} ")
        else:
            rows.append((f"{prefix}{name}".replace("_", " "), value))
    return rows


def _show(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return str(value)
        case float():
            return f"{value:.3g}" if abs(value) < 1e3 else f"{value:.0f}"
        case list():
            return ", ".join(_show(v) for v in value)
        case {"low": low, "high": high, **middle}:
            centre = middle.get("median", middle.get("of_medians"))
            return f"{_show(centre)} [{_show(low)}, {_show(high)}]"
        case dict():
            return " ".join(f"{key}={_show(v)}" for key, v in value.items())
        case _:
            return str(value).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
    COMPARISON.write_text(in_short.put_in(COMPARISON.read_text(), in_short.table(RESULTS)))
