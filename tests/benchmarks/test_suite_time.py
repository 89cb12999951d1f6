"""Pytest's report as a table of files."""

from __future__ import annotations

from pathlib import Path

from benchmarks.suite_time import cases, table

REPORT = """<testsuites><testsuite time="7.5">
<testcase classname="tests.test_docs" name="test_a[x@y]@test_docs.py" time="1.5"/>
<testcase classname="tests.tuner.test_record.TestOne" name="test_b@tuner/test_record.py" time="2"/>
<testcase classname="tests.test_docs" name="test_c" time="3"><skipped/></testcase>
</testsuite></testsuites>"""


def test_ids_are_those_that_pytest_takes(tmp_path: Path) -> None:
    (tmp_path / "times.xml").write_text(REPORT)
    assert [case.id for case in cases(tmp_path / "times.xml")] == [
        "tests/test_docs.py::test_a[x@y]",
        "tests/tuner/test_record.py::TestOne::test_b",
        "tests/test_docs.py::test_c",
    ]


def test_files_have_the_time_of_their_tests_and_the_slowest_come_first(tmp_path: Path) -> None:
    (tmp_path / "times.xml").write_text(REPORT)
    found = table(tmp_path / "times.xml")
    assert (found["wall_s"], found["tests"], found["skipped"]) == (7.5, 3, 1)
    assert list(found["files"].items()) == [
        ("tests/test_docs.py", {"tests": 2, "seconds": 4.5}),
        ("tests/tuner/test_record.py", {"tests": 1, "seconds": 2.0}),
    ]
    assert found["slowest"][0] == ["tests/test_docs.py::test_c", 3.0]
