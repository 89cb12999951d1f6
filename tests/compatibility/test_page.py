"""The page on compatibility: its sums, its links, and that the tests it names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_promises import functions_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "compatibility.md").read_text()
LINKS = re.findall(r"\[`(\w+)`\]\(\.\./(tests/[\w/]+\.py)\)", PAGE)
GROUPS = re.findall(r"^\| (`\w.*) \| (\d+) \| (\d+) \| (\d+)(: .+)? \| .+ \|$", PAGE, re.MULTILINE)
PUBLIC = 219
"""Its tests at the version that the page names, with functions that these only call."""


@pytest.mark.parametrize(("name", "file"), LINKS)
def test_what_the_page_names_is_there(name: str, file: str) -> None:
    assert (ROOT / file).exists()
    assert name in functions_of(ROOT / file) or name == Path(file).stem


def test_each_of_metaschedules_tests_is_beside_ours_or_has_a_reason() -> None:
    assert sum(int(total) for _, total, *_ in GROUPS) == PUBLIC
    for _, total, beside, left, why in GROUPS:
        assert int(total) == int(beside) + int(left)
        assert bool(why) == (left != "0")
    none = sum(int(left) for *_, left, _ in GROUPS)
    assert none <= 0.15 * PUBLIC
    assert f"{none} do not apply" in PAGE
    assert f"Of {PUBLIC} tests {PUBLIC - none}" in PAGE


def test_each_feature_has_a_test_unless_we_lack_it() -> None:
    table = PAGE.partition("## MetaSchedule's own tests")[0]
    rows = re.findall(r"^\| (\w[^|]+) \| ([^|]+) \|.*\| (\S.*) \|$", table, re.MULTILINE)
    features = [row for row in rows if row[0] != "feature"]
    assert len(features) > 20
    assert {here for _, here, shown in features if shown == "-"} == {"no"}
