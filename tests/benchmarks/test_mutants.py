"""Faults that are planted into a checkout: put in, noticed or not, and taken out again."""

from __future__ import annotations

import ast
import contextlib
from pathlib import Path

import pytest

from benchmarks.mutants.draw import _annotations
from benchmarks.mutants.judge import find_mirrored, judge, order
from benchmarks.mutants.mutant import Mutant, plant

SOURCE = "def double(x):\n    return x * 2\n"
MUTANT = Mutant("tuner/double.py", "Mul_Add", 2, "return x * 2", "return x + 2")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout of one function and its test, which is told from a sum by 3 only."""
    for folder in ("tuner", "tests/tuner"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "tuner" / "double.py").write_text(SOURCE)
    test = "import sys\nsys.path.insert(0, 'tuner')\nfrom double import double\n"
    test += "def test_two():\n    assert double(2) == 4\n"
    test += "def test_three():\n    assert double(3) == 6\n"
    (tmp_path / "tests" / "tuner" / "test_double.py").write_text(test)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu\n    long\n")
    return tmp_path


def test_a_mutant_is_there_as_long_as_it_is_asked_for(tree: Path) -> None:
    file = tree / MUTANT.path
    with contextlib.suppress(RuntimeError), plant(tree, MUTANT) as there:
        assert there
        assert "x + 2" in file.read_text()
        raise RuntimeError
    assert file.read_text() == SOURCE


def test_one_whose_place_is_gone_is_not_planted(tree: Path) -> None:
    (tree / MUTANT.path).write_text("def double(x):\n    return x + x\n")
    with plant(tree, MUTANT) as there:
        assert not there
    assert judge(tree, MUTANT, [], 60.0)[0] == "its place is gone"


@pytest.mark.parametrize(
    ("name", "killed_by"),
    [
        ("::test_two", ""),
        ("", "tests/tuner/test_double.py::test_three"),
        ("::test_that_is_gone", ""),
    ],
)
def test_who_noticed_it_is_named(tree: Path, name: str, killed_by: str) -> None:
    (file,) = find_mirrored(tree, MUTANT.path)
    assert judge(tree, MUTANT, [f"{file}{name}"], 60.0)[0] == killed_by


def test_tests_of_the_mirrored_file_are_asked_first_and_then_quick_ones() -> None:
    took_s = {"tests/tuner/test_double.py::a": 9.0, "tests/b.py::b": 2.0, "tests/c.py::c": 1.0}
    assert order(took_s, took_s, MUTANT.path) == [
        *("tests/tuner/test_double.py::a", "tests/c.py::c", "tests/b.py::b")
    ]


def test_annotations_are_no_places() -> None:
    tree = ast.parse("def f(x: int | None = 1 | 2) -> a | b:\n    y: c | d = 3 | 4\n")
    assert {first for first, _ in _annotations(tree)} == {(1, 9), (1, 32), (2, 7)}
