"""The page of results: made of the raw JSON, all of it, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.in_short import BEGIN, END, put_in, table
from benchmarks.page import COMPARISON, PAGE, RESULTS, page

ROOT = Path(__file__).resolve().parents[2]
README, FLEET = (" ".join((ROOT / d).read_text().split()) for d in ("README.md", "docs/fleet.md"))
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


def test_the_comparison_in_the_repository_is_the_one_of_its_results() -> None:
    text = COMPARISON.read_text()
    assert put_in(text, table(RESULTS)) == text, "run `python -m benchmarks.page`"


def test_a_page_without_marks_is_not_touched() -> None:
    assert put_in(f"a\n{BEGIN}\nold\n{END}\nb\n", ["new"]) == f"a\n{BEGIN}\n\nnew\n\n{END}\nb\n"
    with pytest.raises(ValueError, match="no <!-- made by"):
        put_in("nothing", ["new"])


def test_the_readme_has_the_figure_of_the_table_of_networks() -> None:
    head, _, _ = (ROOT / "benchmarks" / "COVERAGE.md").read_text().partition("\n| network")
    networks, mean, span = re.findall(
        r"^(\d+) of them .* (\S+) of the better of onnxruntime and OpenVINO \((.+)\)", head, re.M
    )[0]
    assert f"Over {networks} networks" in README
    assert f"**{mean} of the better of onnxruntime and OpenVINO** ({span};" in README


def test_the_fleets_page_says_what_it_lives_through() -> None:
    chaos, kills = FOUND["fleet-chaos"], FOUND["fleet-chaos"]["kills"]
    assert (chaos["records"], chaos["ok"]) == (1000, 1000)
    assert (chaos["duplicates"], chaos["lost"], chaos["failure"]) == (0, 0, "")
    said = (
        f"{kills['child']} child processes, {kills['actor']} workers, {kills['node']} nodes, "
        f"{kills['search']} times the search, {kills['driver']} times its driver were killed, "
        f"{kills['network']} nodes were cut off for a while, {kills['drain']} told to go"
    )
    assert said in FLEET
    assert f"next record after {chaos['search_back_median_s']:.0f} s (median)" in FLEET
    scale = FOUND["fleet-scale"]
    assert f"{scale['saturates']['fleet_trials_per_s']:.0f} trials a second" in FLEET
