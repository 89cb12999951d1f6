"""A Ray head of a test's own, on loopback, with a jobs' server and a token; all of it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

from benchmarks.fleet.autoscaled import Autoscaling
from benchmarks.fleet.guard import MARK, end_marked, marked
from cluster.ray_workers.loopback import LOOPBACK
from cluster.ray_workers.ray_cluster import ENVIRONMENT
from tests.cluster.sockets import listeners

ROOT = Path(__file__).resolve().parents[2]


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listening.getsockname()[1] for listening in held]


FOLDER = "TUNER_TEST_RAY_FOLDER"
"""Variable with the folder of the head's own files."""


@contextlib.contextmanager
def ray_head(autoscaling: Autoscaling | None = None, **settings: str) -> Iterator[dict[str, str]]:
    """The environment of a head, of its jobs and of whoever speaks to it, while it runs.

    Args:
        autoscaling: has the head start machines; it does no work itself then.
        settings: further variables of it.
    """
    mark = uuid.uuid4().hex
    # Sockets want short paths.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        port, dashboard, agent, grpc, env_agent, client, metrics = free_ports(7)
        environment = {
            **os.environ,
            **ENVIRONMENT,
            **LOOPBACK,
            "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": uuid.uuid4().hex,
            "RAY_ADDRESS": f"127.0.0.1:{port}",
            "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}",
            MARK: mark,
            FOLDER: folder,
            **settings,
        }
        own = ["--num-cpus=2", f"--resources={json.dumps({'measure': 1})}"]
        if autoscaling is not None:
            words = autoscaling.start_words(Path(folder), {"CPU": 0}, f"127.0.0.1:{port}")
            own = ["--num-cpus=0", *words]
        # `ray start` does not start what the environment says is there already.
        of_head = {k: v for k, v in environment.items() if k != "RAY_ADDRESS"}
        of_head |= {} if autoscaling is None else autoscaling.environment()
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
            *(*own, f"--temp-dir={folder}"),
            *(f"--port={port}", f"--dashboard-port={dashboard}", "--dashboard-host=127.0.0.1"),
            *(f"--dashboard-agent-listen-port={agent}", f"--dashboard-agent-grpc-port={grpc}"),
            *(f"--runtime-env-agent-port={env_agent}", f"--ray-client-server-port={client}"),
            *(f"--metrics-export-port={metrics}", f"--object-store-memory={256 << 20}"),
        ]
        log = Path(folder, "head.log")
        with log.open("w") as out:
            head = subprocess.Popen(command, env=of_head, stdout=out, stderr=out)
        try:
            wait_until_started(head, log)
            wait_for_jobs_server(dashboard)
            assert listeners(marked(mark))
            refuse_outside(mark)
            yield environment
            refuse_outside(mark)  # all that was at work meanwhile, too
        finally:
            head.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                head.wait(30.0)
            end_marked(mark)
            head.wait(10.0)


def wait_until_started(head: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until `ray start` says that all of its processes run."""
    deadline_s = time.monotonic() + 90.0
    while "Ray runtime started" not in log.read_text():
        assert head.poll() is None, log.read_text()
        assert time.monotonic() < deadline_s, log.read_text()
        time.sleep(0.2)


def wait_for_jobs_server(port: int) -> None:
    """Wait until somebody answers there; even a refusal for want of a token is an answer."""
    deadline_s = time.monotonic() + 60.0
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/version", timeout=5.0).close()
            return
        except urllib.error.HTTPError as refused:
            refused.close()
            return
        except OSError:
            assert time.monotonic() < deadline_s, "no jobs' server"
            time.sleep(0.2)


def refuse_outside(mark: str) -> None:
    """Look where processes with this mark listen."""
    assert [one for one in listeners(marked(mark)) if one.outside] == []
