"""Folders of runs on machines that do not see the run folder: gone when their last worker is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from actors.shared_folder import SharedFolder
from tuner.errors import TunerError

WORKER = """
import sys, time
from pathlib import Path
from actors.shared_folder import SharedFolder
folder = SharedFolder(Path(sys.argv[1]))
(folder.path / "log").touch()
print("there", flush=True)
time.sleep(1000)
"""


@contextmanager
def worker(path: Path) -> Iterator[None]:
    """A worker in a process of its own, which is killed in the end."""
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, str(path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        yield
        process.kill()


def test_the_last_worker_that_leaves_removes_it(tmp_path: Path) -> None:
    first, second = (SharedFolder(tmp_path / "runs" / "one") for _ in range(2))
    (first.path / "logs").mkdir()
    first.leave()
    first.leave()
    assert (second.path / "logs").exists()
    second.leave()
    assert list((tmp_path / "runs").iterdir()) == []


def test_that_of_killed_workers_is_removed_by_the_next_and_others_stay(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    with worker(runs / "living"):
        with worker(runs / "killed"):
            pass
        assert (runs / "killed" / "log").exists()
        SharedFolder(runs / "next")
        assert {path.name for path in runs.iterdir()} == {"living", "next"}
        SharedFolder(runs / "living").leave()
        assert (runs / "living" / "log").exists()


def test_a_worker_of_the_same_run_finds_what_a_killed_one_left(tmp_path: Path) -> None:
    """References take long to compute."""
    with worker(tmp_path / "runs" / "one"):
        pass
    SharedFolder(tmp_path / "runs" / "one")
    assert (tmp_path / "runs" / "one" / "log").exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    runs, victim = tmp_path / "runs", tmp_path / "victim"
    victim.mkdir()
    (victim / "file").touch()
    runs.mkdir()
    (runs / "planted").symlink_to(victim)
    SharedFolder(runs / "one")
    assert (victim / "file").exists()
    with pytest.raises(TunerError, match="planted is a link"):
        SharedFolder(runs / "planted")
