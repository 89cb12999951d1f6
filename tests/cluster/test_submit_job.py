"""The example that submits a tuning job, against a head that is started for it on loopback."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.loopback_head import ROOT, ray_head
from tuner.record import Status, record_from_json

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.slow]

MODEL = ["gemm.py:gemm", "--arg", "m=96", "--arg", "n=64", "--arg", "k=80"]


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """What the head, its jobs and who submits them have in common."""
    with ray_head() as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model in it, as a user has one."""
    made = tmp_path / "project"
    made.mkdir()
    shutil.copy(ROOT / "examples" / "gemm.py", made)
    return made


def submit(environment: dict[str, str], folder: Path, *words: str) -> subprocess.Popen[str]:
    """The example, as it is called from the user's folder."""
    return subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "submit_job.py"), *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def artifact_of(run: Path, name: str) -> Path:
    """A file that MLflow has of a run."""
    (found,) = (run / "mlartifacts").rglob(name)
    return found


def in_mlflow(run: Path) -> tuple[set[str], str]:
    """How the run and its tasks ended as MLflow knows them, and the winners that are with it."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{run / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tuner")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [r for r in runs if "mlflow.parentRunId" not in r.data.tags]
    kept = Path(parent.info.artifact_uri.removeprefix("file://"), "best.jsonl")
    return {r.info.status for r in runs}, kept.read_text()


def trials(run: Path) -> int:
    with sqlite3.connect(f"file:{run / 'records.sqlite'}?mode=ro", uri=True) as database:
        return int(database.execute("select count(*) from record").fetchone()[0])


def test_a_job_is_submitted_followed_and_ends(
    environment: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = [*MODEL, "--target", "llvm", "--trials", "12", "--run", str(run)]
    job = submit(environment, folder, "--id", "first", "--deadline-s", "240", *words)
    said, _ = job.communicate(timeout=280)
    assert job.returncode == 0, said
    assert "submitted first" in said
    assert said.count("The trial budget is spent") == 1
    assert "first: succeeded" in said.splitlines()[-1]
    assert trials(run) >= 12  # finalists are timed again
    page = (run / "report.html").read_text()
    assert all(f'aria-label="{chart}"' in page for chart in ("Over time", "Timeline"))
    assert artifact_of(run, "report.html").read_text() == page


def test_a_request_that_cannot_be_met_fails_with_the_commands_own_code(
    environment: dict[str, str], folder: Path
) -> None:
    job = submit(environment, folder, "missing.onnx", "--target", "llvm")
    said, _ = job.communicate(timeout=120)
    assert "missing.onnx" in said
    assert ": failed: " in said.splitlines()[-1]
    assert job.returncode == 1


@pytest.mark.long
def test_ctrl_c_stops_the_job_and_keeps_what_was_measured_and_the_winners(
    environment: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = [*MODEL, "--target", "llvm", "--trials", "100000", "--run", str(run)]
    job = submit(environment, folder, *words)
    deadline_s = time.monotonic() + 150.0
    while time.monotonic() < deadline_s and job.poll() is None:
        with contextlib.suppress(sqlite3.Error):
            if trials(run) >= 3:
                break
        time.sleep(0.5)
    job.send_signal(signal.SIGINT)
    said, _ = job.communicate(timeout=150)
    assert job.returncode == 3, said
    assert "stopped" in said.splitlines()[-1]
    assert "Stopped by a signal" in said
    assert trials(run) >= 3
    statuses, winners = in_mlflow(run)
    assert statuses == {"KILLED"}
    assert winners == (run / "tracking" / "best.jsonl").read_text()
    (winner,) = [record_from_json(line) for line in winners.splitlines()]
    assert winner.measurement.status is Status.OK


def test_who_has_no_token_is_told_so(environment: dict[str, str], folder: Path) -> None:
    without = {**environment, "RAY_AUTH_MODE": "disabled"}
    job = submit(without, folder, "gemm.py:gemm")
    said, _ = job.communicate(timeout=60)
    assert job.returncode == 1
    assert "takes no jobs of ours" in said
    assert "Traceback" not in said
