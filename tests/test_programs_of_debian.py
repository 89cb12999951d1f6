"""No test is left out in silence where everything is to be tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs_of_debian import NOTHING_SKIPPED, needed

ROOT = Path(__file__).resolve().parents[1]
MISSING = "no-such-program-of-debian"


def test_one_that_is_there_is_found() -> None:
    assert Path(needed("sh")).name == "sh"


def test_a_test_is_skipped_without_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NOTHING_SKIPPED, raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"apt-get install .*{MISSING}"):
        needed(MISSING)


def test_it_fails_where_nothing_may_be_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NOTHING_SKIPPED, "1")
    with pytest.raises(pytest.fail.Exception, match=MISSING):
        needed(MISSING)


def test_continuous_integration_skips_nothing_and_installs_all_that_tests_need() -> None:
    steps = (ROOT / ".ci" / "run").read_text()
    assert f"export {NOTHING_SKIPPED}=1" in steps
    wanted = (".ci/install-debian", "export", "make test", "make debian")
    order = [steps.index(f"\n{step}") for step in wanted]
    assert order == sorted(order)
    (installed,) = re.findall(
        r"^PROGRAMS=\(([\w -]+)\)", (ROOT / ".ci" / "install-debian").read_text(), re.MULTILINE
    )
    asked = {
        name
        for file in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r'\bneeded\("([\w-]+)"\)', file.read_text())
    }
    assert "prometheus" in asked
    assert asked - {"sh"} <= set(installed.split())
