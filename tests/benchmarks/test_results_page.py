"""The page of results: made of the raw JSON, all of it, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.page import PAGE, RESULTS, page

README = " ".join((Path(__file__).resolve().parents[2] / "README.md").read_text().split())
FOUND: dict[str, Any] = {path.stem: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}


def made(tmp_path: Path, name: str, result: object) -> str:
    (tmp_path / f"{name}.json").write_text(json.dumps(result))
    return page(tmp_path)


def test_results_that_do_not_exist_are_absent(tmp_path: Path) -> None:
    assert "##" not in page(tmp_path)


def test_a_flat_result_is_a_table_of_what_and_figure(tmp_path: Path) -> None:
    text = made(tmp_path, "startup", {"help_s": {"min": 0.1234}, "machine": {"device": "a cpu"}})
    assert "| help s min | 0.123 |" in text
    assert "\na cpu\n" in text


def test_rows_become_a_table_with_quartiles(tmp_path: Path) -> None:
    ratio = {"of_medians": 1.25, "low": 1.0, "high": 1.5, "rounds": 20}
    row = {"shape": "8x8x8", "ratio": ratio, "trials": 16, "failure": "", "failed": {}}
    result = {"settings": {"cores": 2}, "summary": {"least": 1.25}, "rows": [row]}
    text = made(tmp_path, "versus_blas", result)
    assert "| cores | 2 |\n| least | 1.25 |" in text
    assert "| shape | ours ms | BLAS ms | GFLOPS | BLAS | BLAS / ours | trials |" in text
    assert "| 8x8x8 | - | - | - | - | 1.25 [1, 1.5] | 16 |" in text


def test_a_goal_that_was_not_reached_keeps_its_column(tmp_path: Path) -> None:
    row = {"workload": "gemm", "time_to_their_best": {"ours": {"from_start_s": None}}}
    text = made(tmp_path, "versus_metaschedule-gemm", {"rows": [row]})
    assert "benchmarks.versus_metaschedule`): gemm" in text
    assert "s to their best" in text


def test_a_failure_is_shown_where_there_is_one(tmp_path: Path) -> None:
    good = {"shape": "a", "failure": "", "failed": {}}
    bad = {"shape": "b", "failure": "", "failed": {"blas": "wrong | output"}}
    text = made(tmp_path, "versus_blas", {"rows": [good, bad]})
    assert "blas=wrong \\| output" in text
    assert "not in the race" in text


def test_rows_of_a_benchmark_that_the_page_does_not_know_are_shown_whole(tmp_path: Path) -> None:
    text = made(tmp_path, "other", {"rows": [{"a": 1, "b": [1.5, 2]}]})
    assert "| a | b |\n|---|---|\n| 1 | 1.5, 2 |" in text


def test_the_page_in_the_repository_is_the_one_of_its_results() -> None:
    assert PAGE.read_text() == page(), "run `python -m benchmarks.page`"


def test_the_readme_says_what_tuning_gives() -> None:
    for model in ("squeezenet, tuned for 4", "resnet50, 7", "an encoder layer of BERT-base, 4"):
        name = next(n for n in ("squeezenet", "resnet50", "encoder") if n in model)
        ratio = FOUND[f"versus_onnxruntime-{name}"]["summary"]["ratio"]
        assert f"{model} minutes | {ratio:.2f} |" in README
    for what, shapes in (("products", 3), ("batches", 4)):
        summary = FOUND["versus_blas"]["summary"][what]
        rows = [r for r in FOUND["versus_blas"]["rows"] if len(sizes(r["shape"])) == shapes]
        best, worst = 1 / max(map(ratio_of, rows)), 1 / min(map(ratio_of, rows))
        said = f"| {1 / summary['geometric_mean']:.2f} ({best:.2f} to {worst:.2f}) |"
        assert said in README
    bytes_ = [1 / ratio_of(row) for row in FOUND["int8"]["rows"]]
    assert f"Products of bytes take {min(bytes_):.2f} to {max(bytes_):.2f} of" in README


def sizes(shape: str) -> list[str]:
    return re.findall(r"\d+", shape)


def ratio_of(row: dict[str, Any]) -> float:
    return float(row["ratio"]["of_medians"])


def test_the_readme_says_how_we_compare_with_metaschedule() -> None:
    result = FOUND["versus_metaschedule-geomean"]
    summary = {name: kept for name, kept in result["summary"].items() if name != "rows"}
    mean = {name: f"{kept['geometric_mean']:.2g}" for name, kept in summary.items()}
    assert f"trials for each on both sides, geometric mean | {mean['latency_ratio']} |" in README
    assert f"ours took {mean['wall_ratio']} of MetaSchedule's wall time" in README
    assert f"made {mean['rate_ratio']} times as many trials" in README
    least = {
        name: f"{kept['at_least']:.2f}" for name, kept in summary.items() if "at_least" in kept
    }
    in_all = least["time_to_their_best_from_start_to_their_end_ratio"]
    assert f"after {in_all} of the time" in README
    assert f"({least['time_to_their_best_from_start_ratio']} of when it found" in README

    def taken(*names: str) -> list[str]:
        rows = [r["race"]["ratio"] for r in result["rows"] if r["workload"] in names]
        return [f"{found:.2f}" for found in sorted(ratio["of_medians"] for ratio in rows)]

    products, convolutions = taken("gemm", "dense", "batch_gemm"), taken("conv2d", "pointwise")
    spans = [f"{found[0]} to {found[-1]}" for found in (products, convolutions)]
    said = [*spans, " and ".join(taken("depthwise")), *taken("softmax")]
    assert f"| {'; '.join(said)} |" in README
    (gemm,) = taken("gemm")
    assert f"there ours was {float(gemm) - 1:.0%}".replace("%", " %") in README


@pytest.mark.parametrize(
    ("program", "number"),
    [("dense, 16T x 768 x 2304", 0), ("attention, T x 64 x T", 1), ("attention, T x T x 64", 2)],
)
def test_the_readme_says_what_one_tuning_for_eight_sizes_gives(program: str, number: int) -> None:
    row = FOUND["dynamic"]["rows"][number]
    over = row["latency"]["over_static"]
    said = f"| {row['wall_ratio']:.1f} | {over['mean']:.2f} ({over['worst']:.2f}) "
    said += f"| {row['latency']['over_blas']['mean']:.2f} |"
    assert re.search(rf"{re.escape(program)}[^|]*{re.escape(said)}", README)


def test_the_readme_says_what_one_tuning_for_other_sizes_gives() -> None:
    layer = FOUND["dynamic_encoder"]["summary"]
    alone = f"{layer['over_static_mean']:.2f} ({layer['over_static_worst']:.2f})"
    said = f"| {layer['wall_ratio']:.0f} | {alone} | {layer['over_onnxruntime_mean']:.2f} of onnx"
    assert said in README
    calm, all_sizes = FOUND["dynamic-calmer"]["rows"], FOUND["dynamic-1-128"]["rows"]
    assert f"took {listed(r['wall_ratio'] for r in calm)} times less" in README
    pairs = [r["latency"]["over_static"] for r in calm]
    both = listed("{mean:.2f} ({worst:.2f})".format(**pair) for pair in pairs)
    assert f"the kernels {both} of the time" in README
    assert f"would take {listed((r['wall_ratio'] for r in all_sizes), '.0f')} times" in README
    over = [r["latency"]["over_static"] for r in all_sizes]
    assert f"took {listed((o['mean'] for o in over), '.2f')} of the time" in README
    assert f"(worst {listed((o['worst'] for o in over), '.2f')})" in README
    over_blas = [r["latency"]["over_blas"]["mean"] for r in all_sizes]
    assert f"and {listed(over_blas, '.2f')} of OpenBLAS's" in README
    (again,) = (r["latency"]["over_static"] for r in FOUND["dynamic-1-128-again"]["rows"])
    assert f"it is {again['mean']:.2f} (worst {again['worst']:.2f})" in README
    decided = [r["decision_us"] * 1e3 for r in (*FOUND["dynamic"]["rows"], *calm)]
    assert f"costs {min(decided):.0f} to {max(decided):.0f} ns" in README


def listed(values: Iterable[float | str], spec: str = ".1f") -> str:
    one, two, three = (v if isinstance(v, str) else format(v, spec) for v in values)
    return f"{one}, {two} and {three}"


def test_the_readme_says_what_a_fleet_does() -> None:
    chaos, kills = FOUND["fleet-chaos"], FOUND["fleet-chaos"]["kills"]
    assert (chaos["records"], chaos["ok"]) == (1000, 1000)
    assert (chaos["duplicates"], chaos["lost"], chaos["failure"]) == (0, 0, "")
    said = (
        f"{kills['child']} child processes, {kills['actor']} workers, {kills['node']} nodes, "
        f"{kills['search']} times the search, {kills['driver']} times its driver are killed, "
        f"{kills['network']} nodes are cut off"
    )
    assert said in README
    assert f"{kills['drain']} told to go" in README
    back = chaos["search_back_median_s"], chaos["search_back_worst_s"]
    assert f"after {back[0]:.0f} s (median; the worst {back[1]:.0f} s" in README
    join = FOUND["fleet-join"]
    assert f"after {join['join_median_s']:.1f} s; after {join['leave_median_s']:.1f} s" in README
    scale, slots = FOUND["fleet-scale"], FOUND["fleet-slots"]
    used = {row["slots"]: f"{row['efficiency']:.0%}".replace("%", " %") for row in scale["rows"]}
    assert f"{used[128]} of what 128 could do" in README
    assert f"one search can feed ({used[256]})" in README
    assert f"saturates at {scale['saturates']['fleet_trials_per_s']:.0f} trials a second" in README
    assert f"saturates at {round(scale['core_trials_per_s'], -2):,.0f} trials a second" in README
    memory = scale["memory"]
    assert f"{memory['peak_mb']:.0f} MB: {memory['kb_per_record']:.1f} kB for each" in README
    assert f"of which {memory['features_kb_per_record']:.1f} kB" in README
    assert f"{memory['grown_in_idle_time_mb']:.1f} MB in half a minute" in README
    busy = slots["busy_with_backlog"], slots["busy_whole_run"]
    assert f"{busy[0]:.0%} of the time in which".replace("%", " %") in README
    assert f"{busy[1]:.0%} of the whole run".replace("%", " %") in README
    assert [f"{share:.0%}" for share in FOUND["fleet-share"]["shares"]] == ["50%"] * 2
    grown = FOUND["fleet-grow"]
    assert (grown["most_machines"], grown["machines_at_last_trial"]) == (3, 2)
    assert grown["machines_after"] == 1
