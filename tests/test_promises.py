"""Each promise of the docs has a test: the table of them names tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROMISES = ROOT / "docs" / "development" / "promises.md"
ROWS = re.findall(r"^\| ([^|]+[^|\s]) \| (.+) \|$", PROMISES.read_text(), re.MULTILINE)
TABLE = [(said, kept) for said, kept in ROWS if said != "promise" and not set(said) <= set("-| ")]


def functions_of(path: Path) -> set[str]:
    """Names of the test functions of a file, those of its classes included."""
    tree = ast.parse(path.read_text())
    return {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def test_there_are_promises() -> None:
    assert len(TABLE) > 140
    assert len({said for said, _ in TABLE}) == len(TABLE)


@pytest.mark.parametrize(("said", "kept"), TABLE, ids=lambda text: text[:60])
def test_a_promise_is_kept_by_tests_that_are_there(said: str, kept: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", kept)
    assert named, said
    assert re.sub(r"`[^`]+`|,| ", "", kept) == "", "nothing but tests keeps a promise"
    for file, name in named:
        assert name in functions_of(ROOT / file), f"{file} has no {name}"
