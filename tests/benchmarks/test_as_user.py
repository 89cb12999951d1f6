"""What is reported of a library as its user runs it, from samples that are made up."""

from __future__ import annotations

import pytest

from benchmarks import as_user
from benchmarks.page import section

SAMPLES = {"run": [1.0, 1.0, 1.0], "bench": [1.05, 1.0, 1.1], "user": [2.0, 0.9, 1.1]}


def test_the_sides_are_apart_by_the_largest_median_over_the_least() -> None:
    row = as_user.row("gemm", "", SAMPLES, 0.97, [2, 2, 2])
    assert row["apart"] == pytest.approx(0.1)
    assert row["user_over_run"]["of_medians"] == pytest.approx(1.1)
    assert row["user_over_bench"]["of_medians"] == pytest.approx(1.1 / 1.05)
    assert row["user_ms"] == {"median": 1.1, "low": 1.0, "high": 1.55, "rounds": 3}
    assert (row["recorded_ms"], row["threads"]) == (0.97, [2])


def test_a_models_tasks_timed_alone_are_no_part_of_what_must_be_one_number() -> None:
    samples = {"run": [1.0], "bench": [2.0], "user": [2.1]}
    assert as_user.row("model", "", samples, 1.0, [2])["apart"] == pytest.approx(0.05)
    assert as_user.row("gemm", "", samples, 1.0, [2])["apart"] == pytest.approx(1.1)


def test_a_process_with_other_threads_shows() -> None:
    assert as_user.row("gemm", "", SAMPLES, 1.0, [2, 1, 2])["threads"] == [1, 2]


def test_the_summary_is_the_worst_row_and_counts_failures() -> None:
    good = [as_user.row("gemm", "", SAMPLES, 1.0, [2]), {"failure": "", "apart": 0.02}]
    said = as_user.summary([*good, {"program": "model", "failure": "no winner"}])
    assert said == {"failed": 1, "apart": pytest.approx(0.1)}
    assert as_user.summary([{"failure": "x"}]) == {"failed": 1, "apart": None}


def test_each_side_is_first_as_often_as_the_others() -> None:
    orders = [as_user.turned(as_user.SIDES, number) for number in range(6)]
    assert [order[0] for order in orders] == [*as_user.SIDES, *as_user.SIDES]
    assert all(sorted(order) == sorted(as_user.SIDES) for order in orders)


def test_a_users_environment_says_nothing_of_threads_nor_of_us() -> None:
    ours = {"TVM_NUM_THREADS": "2", "TVM_BIND_THREADS": "0", "OMP_NUM_THREADS": "1"}
    assert as_user.plain({**ours, "PYTHONPATH": "x", "PATH": "/bin"}) == {"PATH": "/bin"}


def test_the_page_shows_all_sides() -> None:
    result = {"summary": {"apart": 0.1}, "rows": [as_user.row("gemm", "", SAMPLES, 1.0, [2])]}
    text = "\n".join(section("as_user", result))
    assert "(`benchmarks.as_user`)" in text
    assert "| program | sizes | as a run ms | tuner bench ms | a user's process ms |" in text
    assert "| gemm |  | 1 [1, 1] | 1.05 [1.02, 1.08] | 1.1 [1, 1.55] |" in text
