"""Whether tests notice a mutant: those that run its line, the quickest files first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants.contexts import report_of
from benchmarks.mutants.mutant import MARKS, Mutant, plant
from benchmarks.suite_time import cases

_AT_MOST_S = 240.0
"""What a mutant's tests may take in all, as they took when they were covered."""
_MOST_TESTS = 400
_SLOWER, _START_S = 3.0, 60.0
"""How much longer they get before they count as hanging, which is noticed, too."""
UNKNOWN_S = 600.0
"""What tests get of which nobody knows how long they take."""
_NOBODY = (0, 5)
"""Pytest's status where all tests passed, and where none was there to be run."""
_GONE = "ERROR: not found: "
"""What pytest says of a test that it does not find in a file that is there."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant.

    Attributes:
        killed_by: the test that failed first; `timeout` where none ended; empty where all passed.
        tests: how many were asked.
        covered: whether coverage knows tests that run its line.
    """

    mutant: Mutant
    killed_by: str
    tests: int
    covered: bool
    seconds: float


def durations(data: Path) -> dict[str, float]:
    """Seconds that each test took while it was covered, by its id."""
    return {case.id: case.seconds for case in cases(report_of(data))}


def order(tests: Iterable[str], took_s: Mapping[str, float], path: str) -> list[str]:
    """The tests to ask, file by file: those of the mirrored folder first, then quick ones."""
    files: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        files[test.split("::")[0]].append(test)
    room = f"tests/{Path(path).parent.as_posix()}/"
    stem = Path(path).stem

    def rank(file: str) -> tuple[bool, bool, float]:
        near = Path(file).stem == f"test_{stem}"
        return not near, not file.startswith(room), sum(took_s.get(t, 1.0) for t in files[file])

    chosen: list[str] = []
    spent_s = 0.0
    for file in sorted(files, key=rank):
        for test in sorted(files[file], key=lambda t: took_s.get(t, 1.0)):
            spent_s += took_s.get(test, 1.0)
            if chosen and (spent_s > _AT_MOST_S or len(chosen) >= _MOST_TESTS):
                return chosen
            chosen.append(test)
    return chosen


def find_mirrored(tree: Path, path: str) -> list[str]:
    """Test files of the folder that mirrors a file's; where nothing is covered, these are asked."""
    folder = Path("tests") / Path(path).parent
    while not (tree / folder).is_dir():
        folder = folder.parent
    named = tree / folder / f"test_{Path(path).stem}.py"
    if named.exists():
        return [str(named.relative_to(tree))]
    return sorted(str(f.relative_to(tree)) for f in (tree / folder).glob("test_*.py"))


def judge(tree: Path, mutant: Mutant, tests: list[str], timeout_s: float) -> tuple[str, float]:
    """Who noticed it first, and the seconds that took."""
    began_s = time.monotonic()
    with plant(tree, mutant) as there:
        if not there:
            return "its place is gone", 0.0
        words = ["-m", "pytest", "-x", "-p", "no:cacheprovider", *MARKS]
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            [sys.executable, *words, *tests],
            cwd=tree,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            said, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return "timeout", time.monotonic() - began_s
    took_s = time.monotonic() - began_s
    if process.returncode in _NOBODY or _GONE in said:
        return "", took_s
    failed = _FAILED.search(said)
    return (failed[1] if failed else f"status {process.returncode}"), took_s


def deadline_s(tests: Iterable[str], took_s: Mapping[str, float]) -> float:
    """How long tests may take before they count as hanging."""
    return _START_S + _SLOWER * sum(took_s.get(t, 1.0) for t in tests)
