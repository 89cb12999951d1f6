"""The example that submits a tuning job, against a head that is started for it on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from actors.ray_actors import MEASURE
from cluster.ray_cluster import ENVIRONMENT, LOOPBACK

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
MODEL = ["gemm.py:gemm", "--arg", "m=96", "--arg", "n=64", "--arg", "k=80"]
MARK = "TUNER_TEST_MARK"


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listening.getsockname()[1] for listening in held]


def marked(mark: str) -> list[psutil.Process]:
    """Processes that inherited this mark, this one aside."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process)
    return found


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """What the head, its jobs and who submits them have in common; a head of our own runs."""
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # sockets want short paths
        port, dashboard, agent, grpc, env_agent, client, metrics = free_ports(7)
        environment = {
            **{name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
            **ENVIRONMENT,
            **LOOPBACK,
            "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": uuid.uuid4().hex,
            "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}",
            MARK: mark,
        }
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
            *("--num-cpus=2", f"--resources={json.dumps({MEASURE: 1})}", f"--temp-dir={folder}"),
            *(f"--port={port}", f"--dashboard-port={dashboard}", "--dashboard-host=127.0.0.1"),
            *(f"--dashboard-agent-listen-port={agent}", f"--dashboard-agent-grpc-port={grpc}"),
            *(f"--runtime-env-agent-port={env_agent}", f"--ray-client-server-port={client}"),
            *(f"--metrics-export-port={metrics}", f"--object-store-memory={256 << 20}"),
        ]
        log = Path(folder, "head.log")
        with log.open("w") as out:
            head = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        try:
            wait_for_jobs_server(dashboard, head, log)
            assert set(listeners(mark)) <= {"127.0.0.1", "::1"}
            yield environment
        finally:
            head.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                head.wait(30.0)
            for process in marked(mark):
                with contextlib.suppress(psutil.Error):
                    process.kill()
            head.wait(10.0)


def wait_for_jobs_server(port: int, head: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until somebody answers there; even a refusal for want of a token is an answer."""
    deadline_s = time.monotonic() + 90.0
    while time.monotonic() < deadline_s:
        assert head.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/version", timeout=5.0).close()
            return
        except urllib.error.HTTPError as refused:
            refused.close()
            return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"no head within 90 s: {log.read_text()}")


def listeners(mark: str) -> Iterator[str]:
    """Addresses that processes with this mark accept connections on."""
    for process in marked(mark):
        with contextlib.suppress(psutil.Error):
            for line in process.net_connections("tcp"):
                if line.status == psutil.CONN_LISTEN:
                    yield line.laddr.ip.removeprefix("::ffff:")


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


def test_a_request_that_cannot_be_met_fails_with_the_commands_own_code(
    environment: dict[str, str], folder: Path
) -> None:
    job = submit(environment, folder, "missing.onnx", "--target", "llvm")
    said, _ = job.communicate(timeout=120)
    assert "missing.onnx" in said
    assert ": failed: " in said.splitlines()[-1]
    assert job.returncode == 1


def test_ctrl_c_stops_the_job_and_keeps_what_was_measured(
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


def test_who_has_no_token_is_told_so(environment: dict[str, str], folder: Path) -> None:
    without = {**environment, "RAY_AUTH_MODE": "disabled"}
    job = submit(without, folder, "gemm.py:gemm")
    said, _ = job.communicate(timeout=60)
    assert job.returncode == 1
    assert "takes no jobs of ours" in said
    assert "Traceback" not in said
