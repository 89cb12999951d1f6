"""The page of results: made of the raw JSON, all of it, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.page import PAGE, page


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
