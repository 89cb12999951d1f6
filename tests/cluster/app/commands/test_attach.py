"""A search outlives its driver: it is found again, watched, gone on with, and stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cluster.loopback_head import ROOT, ray_head
from tuner.errors import TunerError
from tuner.record import Status, record_from_json
from tuner.runs.folder import RunFolder
from tuner.storage.sqlite_store import SqliteStore

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.slow]

_PATIENCE_S = 120.0
ENDED_BY_SIGNAL = 130
RAY_INLINES_BYTES = 100 << 10
MODEL = ["examples/gemm.py:gemm", "--arg=m=48", "--arg=n=48", "--arg=k=48", "--target=llvm"]


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """A cluster that others share, and who speaks to it."""
    with ray_head() as found:
        yield found


def tuner(environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tuner", *words],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(environment: dict[str, str], *words: str) -> tuple[int, str, str]:
    with tuner(environment, *words) as process:
        out, err = process.communicate(timeout=_PATIENCE_S)
        return process.returncode, out, err


def wait_for_records(run: Path, number: int) -> None:
    until_s = time.monotonic() + _PATIENCE_S
    while stored(run) < number:
        assert time.monotonic() < until_s, "the search does not go on"
        time.sleep(0.2)


def stored(run: Path) -> int:
    store = RunFolder(run).store
    if not store.exists():
        return 0
    try:
        with closing(SqliteStore(store, read_only=True)) as opened:
            return sum(1 for _ in opened.scan())
    except TunerError:  # the file is there, its tables are not yet
        return 0


def test_a_search_without_its_driver_goes_on_and_is_stopped(
    environment: dict[str, str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command = ["tune", *MODEL, "--trials=100000", "--until=0", "--run", str(run)]
    with tuner(environment, *command) as driver:
        wait_for_records(run, 3)
        driver.kill()
    wait_for_records(run, stored(run) + 5)
    code, out, err = finished(environment, "top", "--json")
    assert (code, err) == (0, "")
    (seen,) = json.loads(out)["runs"]
    assert (seen["run"], seen["state"], seen["at_work"]) == (str(run), "search", True)
    assert seen["trials"] >= 8
    code, out, err = finished(environment, "stop", str(run))
    assert (code, err) == (0, "")
    assert int(re.findall(r"stopped after (\d+) trials", out)[0]) >= 8
    left = (run / "tracking" / "files" / "best.jsonl").read_text().splitlines()
    assert [record_from_json(line).measurement.status for line in left] == [Status.OK]
    until_s = time.monotonic() + _PATIENCE_S
    code = ENDED_BY_SIGNAL
    while code == ENDED_BY_SIGNAL:  # it answers for some seconds more, for others who watch
        assert time.monotonic() < until_s, "the search does not go"
        time.sleep(2.0)  # each command starts a process, which takes as long
        code, _, err = finished(environment, "attach", str(run))
    assert code == 1
    assert "no search is at work on" in err


@pytest.mark.long
def test_a_large_search_that_is_killed_after_its_driver_comes_back(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """Ray keeps large arguments of an actor with whoever made it, and they go with that."""
    sizes = ",".join(map(str, range(1, 25)))
    model = ["benchmarks/dynamic_programs.py:mixed", f"--arg=sizes={sizes}", "--target=llvm"]
    run = tmp_path / "run"
    with tuner(
        environment, "tune", *model, "--trials=100000", "--until=0", "--run", str(run)
    ) as driver:
        wait_for_records(run, 3)
        driver.kill()
    (job,) = RunFolder(run).scratch.glob("*.job")
    assert job.stat().st_size > RAY_INLINES_BYTES
    holder = json.loads(RunFolder(run).lock.read_text())["pid"]
    os.kill(holder, signal.SIGKILL)
    wait_for_records(run, stored(run) + 5)
    assert json.loads(RunFolder(run).lock.read_text())["pid"] != holder
    assert finished(environment, "stop", str(run))[0] == 0


@pytest.mark.long
def test_whoever_comes_later_sees_the_end(environment: dict[str, str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ["tune", *MODEL, "--trials=60", "--run", str(run)]
    with tuner(environment, *command) as driver:
        wait_for_records(run, 3)
        driver.kill()
    with tuner(environment, "attach", str(run), "--json") as watching:
        code, again, _ = finished(environment, *command, "--json")
        assert [step["command"] for step in json.loads(again)["next"]]
        out, err = watching.communicate(timeout=_PATIENCE_S)
    assert (watching.returncode, code) == (0, 0), err
    assert json.loads(out)["trials"] == json.loads(again)["trials"] == 60


def test_a_cluster_has_to_be_named(environment: dict[str, str], tmp_path: Path) -> None:
    alone = {k: v for k, v in environment.items() if k != "RAY_ADDRESS"}
    code, _, err = finished(alone, "stop", str(tmp_path))
    assert code == 2
    assert "--address" in err
