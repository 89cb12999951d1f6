"""The page of coverage says what its rows say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.coverage.page import page, read_unseen
from benchmarks.coverage.ratios import Ratios, ratios_of

PAGE = Path(__file__).resolve().parents[2] / "benchmarks" / "COVERAGE.md"
RIGHT = {"tasks": 3, "error": 2e-7, "sizes": 1, "wrong": []}


def sides(ours: float | None, onnxruntime: float | None, openvino: float | None) -> dict[str, Any]:
    named = {"ours": ours, "onnxruntime": onnxruntime, "openvino": openvino}
    return {name: None if ms is None else {"median": ms} for name, ms in named.items()}


def raced(**sizes: dict[str, Any]) -> dict[str, Any]:
    return {"time_budget": "90s", "failed": {}, "sizes": sizes}


def test_ratios_are_means_over_sizes_to_each_peer_and_to_the_better_one() -> None:
    found = ratios_of(raced(small=sides(1, 2, 4), large=sides(8, 4, 2)))
    assert isinstance(found, Ratios)
    assert found.onnxruntime == pytest.approx(1)
    assert found.best == pytest.approx(2**0.5)
    assert (found.worst, found.worst_at) == (2, "large")


def test_a_peer_that_cannot_run_a_network_is_left_out() -> None:
    found = ratios_of(raced(only=sides(1, None, 2)))
    assert isinstance(found, Ratios)
    assert found.onnxruntime is None
    assert found.best == 0.5


def test_a_network_that_was_not_tuned_says_why() -> None:
    assert ratios_of({"failure": "tuner tune: no room"}) == "tuner tune: no room"
    assert ratios_of({**raced(only=sides(None, 1, 1)), "failed": {"ours": "late"}}) == "late"


def test_failures_stay_on_the_page() -> None:
    rows = {
        "one convolution": {"dynamo": RIGHT},
        "good": {"dynamo": RIGHT},
        "bad": {"dynamo": {"crashed": "ValueError: odd"}},
        "wide, batch": {"dynamo": {**RIGHT, "wrong": [{"sizes": {"batch": 3}}], "sizes": 9}},
    }
    opened, single = frozenset({"wide, batch"}), frozenset({"one convolution"})
    text = page(rows, {"good": raced(only=sides(1, 2, 4))}, opened, single, 5)
    assert "1 of 5 are yet to be tried" in text
    assert "All dimensions known: 1 of 2" in text
    assert "| good | 3 | right, 2e-07 | 90s | 1 | 0.50 | 0.50 |" in text
    assert "Convolutions that are not plain: 1 of 1" in text
    assert "ValueError: odd" in text
    assert "Open dimensions: 0 of 1 files" in text
    assert "wrong at 1 of 9 sizes" in text


def test_quantized_files_have_limits_of_their_own() -> None:
    rows = {
        name: {"file": {**RIGHT, "error": error, "within": within}}
        for name, error, within in (("bytes", 0.02, 0.05), ("bits", 0.02, 1e-3))
    }
    odd = {"odd": {"file": {"refused": "/a/model.pt2: the importer does not know operator odd"}}}
    text = page({**rows, **odd}, {}, frozenset(), frozenset(), 3)
    assert "Quantized files: 1 of 3" in text
    assert "| bytes | 3 | right, 2e-02 | 0.05 |" in text
    assert "| bits | 3 | wrong by 2e-02 | 0.001 |" in text
    assert "| odd |  | refused: pt2: the importer does not know operator odd |" in text
    assert "All dimensions known: 0 of 0" in text


def test_what_a_minute_gives_is_told_with_a_prior_and_without() -> None:
    def row(ours: float) -> dict[str, Any]:
        return {**raced(only=sides(ours, 2, 4)), "time_budget": "60s", "tasks": 9, "trials": 70}

    unseen = {
        "shipped": {"a, unseen": row(1), "b, unseen": row(4)},
        "none": {"a, unseen": row(2), "b, unseen": {"failure": "late"}},
    }
    text = page({}, {}, frozenset(), frozenset(), 0, unseen=unseen)
    assert "After a minute: 2 networks that nobody tuned for" in text
    assert "With `--base-model shipped`: 2 of them were timed. Geometric means: 1.00 of" in text
    assert "| a | 9 | 70 | 1 | 0.50 | 0.50 | 70 | 2 | 1.00 | 1.00 |" in text
    assert "| b | 9 | 70 | 4 | 2.00 | 2.00 |  | late | | |" in text


def test_what_the_check_of_the_import_left_out_is_listed() -> None:
    whole = {"state": "passed", "said": "as x on 2 inputs", "notes": [], "seconds": 3.0}
    part = {**whole, "notes": ["9 s of processor time were spent"]}
    none = {"state": "skipped", "said": "x does not take it", "notes": [], "seconds": 1.0}
    rows = {
        name: {"dynamo": {**RIGHT, "import": check}}
        for name, check in (("a", whole), ("b", part), ("c", none))
    }
    text = page(rows, {}, frozenset(), frozenset(), 3)
    assert "The check of the import: passed for 2 of 3 files" in text
    assert "| b, dynamo | passed | 3.0 | 9 s of processor time were spent |" in text
    assert "| c, dynamo | skipped | 1.0 | x does not take it |" in text
    assert "| a, dynamo" not in text


def test_what_is_refused_of_onnx_own_tests_is_counted_by_what_is_said() -> None:
    kinds = {
        "a": ("right", ""),
        "b": ("refused", "operator X: no"),
        "c": ("refused", "operator X: no"),
    }
    rows = {name: {"kind": kind, "why": why} for name, (kind, why) in kinds.items()}
    text = page({}, {}, frozenset(), frozenset(), 0, {"onnx": "1.2", "rows": rows})
    assert "own tests of its operators: 1 of 3 are right" in text
    assert "| 2 | operator X: no |" in text


def test_the_page_in_the_repository_is_the_one_of_its_results() -> None:
    """With the networks shared out over its tables as they are there: telling takes PyTorch."""
    text = PAGE.read_text()
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    named = {part.partition(":")[0]: re.findall(r"^\| ([^|]+?) \|", part, re.M) for part in parts}
    networks, raced, operators = (
        json.loads((PAGE.parent / "results" / "coverage" / f"{name}.json").read_text())
        for name in ("networks", "latency", "node-tests")
    )
    networks, raced = networks["rows"], raced["rows"]
    opened, single = (
        frozenset(named[title]) & frozenset(networks)
        for title in ("Open dimensions", "Convolutions that are not plain")
    )
    assert opened
    assert single
    unseen = read_unseen(PAGE.parent / "results" / "coverage")
    assert text == page(networks, raced, opened, single, len(networks), operators, unseen)
