"""Which tests run which line: coverage's contexts, in the tests' processes and in their children.

As a plugin of pytest (`-p benchmarks.mutants.contexts`) it names coverage's context after each
test. A child has the test it was started in as its context, which pytest leaves in the environment.
What a killed child ran is not known.
"""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.mutants.mutant import MARKS, PACKAGES
from benchmarks.suite_time import GROUP

_SETTINGS = """
[run]
data_file = {data}
parallel = true
source_dirs = {dirs}
context = ${{PYTEST_CURRENT_TEST-}}
disable_warnings = no-data-collected, module-not-measured, couldnt-parse, no-sysmon
patch = _exit
"""
_PHASE = re.compile(r" \((?:setup|call|teardown)\)$")
"""What pytest puts after a test's name in the environment."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    import coverage

    current = coverage.Coverage.current()
    if current is not None:
        current.switch_context(item.nodeid)
    return (yield)


def report_of(data: Path) -> Path:
    """Pytest's report in XML of the run that was covered."""
    return data.with_name(f"{data.name}.xml")


def cover(tree: Path, data: Path) -> int:
    """Run the tests of a checkout and keep the contexts; gives pytest's status."""
    parts = data.with_name(f"{data.name}.parts")
    parts.mkdir(parents=True)
    dirs = "".join(f"\n    {tree / package}" for package in PACKAGES)
    settings = parts / "coverage.ini"
    settings.write_text(_SETTINGS.format(data=parts / "covered", dirs=dirs))
    env = {**os.environ, "COVERAGE_PROCESS_START": str(settings)}
    words = ["-p", "benchmarks.mutants.contexts", *MARKS]
    words += ["--numprocesses=2", "--dist=loadgroup", f"--junitxml={report_of(data)}"]
    status = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=tree, env=env).returncode
    combine = [sys.executable, "-m", "coverage", "combine", f"--rcfile={settings}", "--quiet"]
    subprocess.run(combine, cwd=parts, check=True)
    (parts / "covered").replace(data)
    return status


def tests_of(data: Path, path: str, line: int) -> set[str]:
    """The tests that ran a line, by their names."""
    from coverage.numbits import numbits_to_nums

    found: dict[str, bool] = defaultdict(bool)
    query = (
        "select c.context, l.numbits from line_bits l join context c on c.id = l.context_id "
        "join file f on f.id = l.file_id where f.path like ?"
    )
    with closing(sqlite3.connect(data)) as base:
        for context, numbits in base.execute(query, (f"%/{path}",)):
            test = context.split("|")[-1] or context.split("|")[0]
            name = GROUP.sub("", _PHASE.sub("", test))
            found[name] |= line in numbits_to_nums(numbits)
    return {name for name, ran in found.items() if ran and "::" in name}
