"""What is reported of races against BLAS, onnxruntime and copies, from races that are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import int8, memory_bound, versus_blas, versus_onnxruntime
from benchmarks.copies import LARGE_BYTES
from benchmarks.our_side import OurRun
from benchmarks.process_tree import Seen, Watched
from benchmarks.race import Race
from benchmarks.suites import gemm_shape, workload
from tuner.errors import TunerError
from tuner.view.task_view import TaskView

RUN = OurRun(Path("run"), "", Watched("", 0.0, 9.0, "", "", Seen()), (), None, {})


def test_a_ratio_to_blas_above_one_means_that_ours_is_faster() -> None:
    race = Race("", {"ours": [1e-3] * 3, "blas": [2e-3] * 3}, {})
    row = versus_blas.row(gemm_shape("100,100,100"), RUN, race)
    assert row["ratio"]["of_medians"] == 2.0
    assert row["ours_gflops"] == pytest.approx(2.0)
    assert row["shape"] == "100x100x100"


def test_products_and_batches_have_means_of_their_own() -> None:
    fast = Race("", {"ours": [1e-3], "blas": [4e-3]}, {})
    slow = Race("", {"ours": [1e-3], "blas": [1e-3]}, {})
    wrong = Race("", {"blas": [1e-3]}, {"ours": "wrong output: all of it"})
    rows = [
        versus_blas.row(gemm_shape("8,8,8"), RUN, fast),
        versus_blas.row(gemm_shape("9,9,9"), RUN, slow),
        versus_blas.row(gemm_shape("7,7,7"), RUN, wrong),
        versus_blas.row(gemm_shape("2,8,8,8,tb"), RUN, fast),
    ]
    assert rows[2]["ratio"] is None
    assert rows[3]["shape"] == "2x8x8x8-tb"
    said = versus_blas.summary(rows)
    assert said["products"] == {
        "geometric_mean": pytest.approx(2.0),
        "least": 1.0,
        "of": 2,
        "failed": 1,
    }
    assert said["batches"]["of"] == 1


def test_the_share_is_of_the_fastest_copy_of_that_size() -> None:
    samples = {
        "ours": [2e-3],
        "loop": [3e-3],
        "memcpy": [1e-3],
        "memcpies": [4e-3],
        "large loop": [LARGE_BYTES / 2e9],
    }
    row = memory_bound.row(workload("softmax"), RUN, Race("", samples, {}), moved=2_000_000)
    assert row["copy"] == "memcpy"
    assert row["share"]["of_medians"] == 0.5
    assert row["ours_gb_per_s"] == pytest.approx(1.0)
    assert row["large_copy_gb_per_s"] == pytest.approx(2.0)
    assert row["share_of_large"] == pytest.approx(0.5)


def test_a_program_without_a_winner_counts_as_failed() -> None:
    row = memory_bound.row(workload("softmax"), RUN, Race("ours has no winner", {}, {}), moved=1)
    assert memory_bound.summary([row]) == {
        "geometric_mean": None,
        "least": None,
        "of": 0,
        "failed": 1,
    }


def test_tasks_of_a_model_come_by_the_time_it_spends_in_them() -> None:
    tasks = [
        TaskView("a", "once", 1.0, best_s=0.003),
        TaskView("b", "often", 4.0, best_s=0.001),
        TaskView("c", "unknown"),
    ]
    rows = versus_onnxruntime.task_rows(tasks)
    assert [(r["task"], r["share_ms"]) for r in rows] == [
        ("often", 4.0),
        ("once", 3.0),
        ("unknown", None),
    ]


def test_a_model_that_is_no_file_and_no_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TunerError, match="squeezenet, resnet50, encoder"):
        versus_onnxruntime.model_file("squeeznet", tmp_path)


def test_a_ratio_to_floats_above_one_means_that_bytes_are_faster() -> None:
    race = Race("", {"ours": [1e-3] * 3, "float": [3e-3] * 3}, {})
    row = int8.row(gemm_shape("100,100,100"), RUN, RUN, race)
    assert row["ratio"]["of_medians"] == pytest.approx(3.0)
    assert row["int8_ms"]["median"] == pytest.approx(1.0)
    alone = int8.row(gemm_shape("9,9,9"), RUN, RUN, Race("", {"ours": [1e-3]}, {"float": "wrong"}))
    assert alone["ratio"] is None
