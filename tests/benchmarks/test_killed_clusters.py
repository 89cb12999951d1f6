"""What a process started ends with it, whoever ends it and wherever it hangs in the tree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from benchmarks.fleet.guard import marked, start_guard

ROOT = Path(__file__).parents[2]
NAME = "TUNER_GUARD_TEST"
STARTS = """
import os, subprocess, sys, time
from benchmarks.fleet.guard import start_guard
guard = start_guard(sys.argv[1], name="TUNER_GUARD_TEST")
os.environ["TUNER_GUARD_TEST"] = sys.argv[1]
daemon = "(setsid sleep 1000 >/dev/null 2>&1 &)"  # of nobody, in a session of its own
subprocess.run(["sh", "-c", daemon], check=True)
print("started", flush=True)
time.sleep(1000)
"""
WATCHED = "TUNER_OUTER_MARK"


def is_guard(process: psutil.Process) -> bool:
    return "benchmarks.fleet.guard" in process.cmdline()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_what_a_killed_process_started_ends_with_it(number: signal.Signals) -> None:
    mark = uuid.uuid4().hex
    with subprocess.Popen(
        [sys.executable, "-c", STARTS, mark],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        process_group=0,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"started\n"
            until_s = time.monotonic() + 60.0
            while True:
                started = marked(mark, name=NAME)
                if [p.name() for p in started] == ["sleep"]:
                    break
                assert time.monotonic() < until_s, started  # the shell becomes it
                time.sleep(0.01)
        finally:
            os.killpg(process.pid, number)
    _, alive = psutil.wait_procs(started, timeout=60)
    assert alive == []


def test_others_are_left_alone() -> None:
    mark = uuid.uuid4().hex
    with (
        subprocess.Popen(["sleep", "1000"], env={**os.environ, NAME: "another"}) as other,
        subprocess.Popen(["sleep", "1000"], env={**os.environ, NAME: mark}) as mine,
    ):
        guard = start_guard(mark, name=NAME)
        assert guard.stdin is not None
        guard.stdin.close()
        assert mine.wait() == -signal.SIGKILL
        guard.wait()
        assert other.poll() is None
        other.kill()


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_tests_leave_no_ray(number: signal.Signals) -> None:
    """A head of a test's own, by one of two processes of tests, all of which are killed."""
    mark = uuid.uuid4().hex
    tests = [
        *(sys.executable, "-m", "pytest", "--numprocesses=2", "-p", "no:cacheprovider"),
        *("tests/cluster/app/commands/test_attach.py", "-k", "stopped"),
    ]
    with subprocess.Popen(
        tests, stdout=subprocess.DEVNULL, cwd=ROOT, env={**os.environ, WATCHED: mark}
    ) as process:
        until_s = time.monotonic() + 120
        while "raylet" not in {p.name() for p in marked(mark, name=WATCHED)}:
            assert process.poll() is None
            assert time.monotonic() < until_s, "no head"
            time.sleep(0.2)
        tests_own = [c for c in psutil.Process(process.pid).children() if not is_guard(c)]
        for each in (process, *tests_own):
            each.send_signal(number)
    _, alive = psutil.wait_procs(marked(mark, name=WATCHED), timeout=60)
    assert [p.cmdline() for p in alive] == []
