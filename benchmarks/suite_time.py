"""Where the time of `make test` goes: pytest's report in XML as a table of files, in JSON.

PYTEST_ADDOPTS=--junitxml=times.xml make test
python -m benchmarks.suite_time times.xml > benchmarks/results/tests/times.json
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.machine import about

ROOT = Path(__file__).resolve().parents[1]
_SLOWEST = 60

GROUP = re.compile(r"@[\w/.]+$")
"""What xdist puts after a test's name: who stays together."""


@dataclass(frozen=True, slots=True)
class Case:
    """A test that was run; seconds with what it set up.

    Attributes:
        id: as pytest takes it, `tests/a/test_b.py::Class::test_c[d]`.
    """

    id: str
    seconds: float
    skipped: bool

    @property
    def file(self) -> str:
        """Its file, from the root."""
        return self.id.partition("::")[0]


def cases(report: Path) -> Iterator[Case]:
    """The tests of a report."""
    for case in ElementTree.parse(report).iter("testcase"):
        module = (case.get("classname") or case.get("name") or "").split(".")
        classes: list[str] = []
        while module and not (ROOT / "/".join(module)).with_suffix(".py").is_file():
            classes.insert(0, module.pop())
        file = "/".join(module) + ".py"
        name = "::".join([file, *classes, GROUP.sub("", case.get("name", ""))])
        yield Case(name, float(case.get("time", "0")), case.find("skipped") is not None)


def table(report: Path) -> dict[str, Any]:
    """Wall time, and by file the number of tests and their seconds, the slowest first."""
    found = list(cases(report))
    seconds: dict[str, float] = defaultdict(float)
    number: dict[str, int] = defaultdict(int)
    for case in found:
        seconds[case.file] += case.seconds
        number[case.file] += 1
    slowest = sorted(found, key=lambda case: -case.seconds)[:_SLOWEST]
    (suite,) = ElementTree.parse(report).iter("testsuite")
    return {
        "wall_s": float(suite.get("time", "0")),
        "test_s": round(sum(seconds.values()), 1),
        "tests": len(found),
        "skipped": sum(case.skipped for case in found),
        "files": {
            file: {"tests": number[file], "seconds": round(seconds[file], 1)}
            for file in sorted(seconds, key=lambda file: -seconds[file])
        },
        "slowest": [[case.id, round(case.seconds, 1)] for case in slowest],
    }


if __name__ == "__main__":
    print(json.dumps({"machine": about(), **table(Path(sys.argv[1]))}, indent=1))
