"""Watching a command and all that it starts."""

from __future__ import annotations

import json
import os
import sys

import psutil
import pytest

from benchmarks import process_tree
from benchmarks.process_tree import Seen, kind_of, watch

PARENT = """
import subprocess, sys, time
script = "import time; x = bytearray(64 << 20); print(flush=True); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
child.stdout.readline()  # it has its memory
print(child.pid, flush=True)
time.sleep({parent_s})
{end}
"""


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_tree, "_SAMPLE_S", 0.05)


def command(parent_s: float, end: str = "child.kill(); child.wait()") -> list[str]:
    return [sys.executable, "-c", PARENT.format(parent_s=parent_s, end=end)]


def test_a_command_that_ends_well_gives_its_output_and_the_memory_of_its_tree() -> None:
    watched = watch(command(1.0), env=os.environ, limit_s=60.0)
    assert watched.failure_text() == ""
    assert watched.output.strip().isdigit()
    assert watched.seen.peak_rss_bytes > 64 << 20
    assert watched.seen.cpu_total()["driver"] >= 0.0


def test_a_failure_is_told_with_the_last_lines_of_what_was_said() -> None:
    script = "import sys; print('first', file=sys.stderr); sys.exit('last')"
    watched = watch([sys.executable, "-c", script], env=os.environ, limit_s=60.0)
    assert watched.failure_text() == "exit code 1: first / last"


def test_a_failure_names_files_by_their_place_in_the_checkout() -> None:
    script = f"import sys; sys.exit({process_tree.__file__!r} + ':watch failed')"
    watched = watch([sys.executable, "-c", script], env=os.environ, limit_s=60.0)
    assert watched.failure_text() == "exit code 1: benchmarks/process_tree.py:watch failed"


def test_after_the_limit_nothing_of_the_tree_is_left() -> None:
    watched = watch(command(60.0), env=os.environ, limit_s=1.5)
    assert watched.failure == "not done after 1.5 s"
    child = int(watched.output)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_child_that_outlives_its_parent_is_ended_too() -> None:
    watched = watch(command(1.0, end=""), env=os.environ, limit_s=60.0)
    child = int(watched.output)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (["ray::SearchHost"], "search actor"),
        (["ray::BuilderActor.build"], "builder actor"),
        (["ray::IDLE"], "ray"),
        (
            ["python", "-c", "...", json.dumps({"requests": 1, "factory": "actors.run_child:X"})],
            "runner child",
        ),
        (["python", "-c", "...", json.dumps({"factory": "some.other:thing"})], "some.other"),
        (["python", "-m", "tvm.exec.popen_worker", "3", "4"], "popen worker"),
        (["sleep", "{"], "other"),
        ([], "other"),
    ],
)
def test_a_process_is_known_by_its_command_line(line: list[str], kind: str) -> None:
    assert kind_of(line) == kind


def test_cpu_seconds_at_a_time_are_those_of_the_look_before_it() -> None:
    seen = Seen(times_s=[10.0, 20.0], cpu_s=[{"driver": 1.0}, {"driver": 3.0}])
    assert seen.cpu_at(9.0) == {}
    assert seen.cpu_at(19.0) == {"driver": 1.0}
    assert seen.cpu_at(99.0) == seen.cpu_total() == {"driver": 3.0}
