"""Addresses where no Ray answers are told apart before Ray itself waits for minutes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from benchmarks.fleet.local import MARK, marked
from cluster.ray_cluster import ENVIRONMENT, LOOPBACK, environment_for, refuse_silence

_SETTINGS = b"\0\0\0\4\0\0\0\0\0"


@contextmanager
def server(answer: bytes | None) -> Iterator[str]:
    """The address of a server that says this to whoever comes, and keeps the line if None."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        kept = []

        def serve() -> None:
            line, _ = listening.accept()
            kept.append(line)
            if answer is not None:
                line.recv(64)
                line.sendall(answer)
                line.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join(5.0)
        for line in kept:
            line.close()


def test_who_speaks_as_ray_does_is_left_to_ray() -> None:
    with server(_SETTINGS) as address:
        refuse_silence(address, timeout_s=5.0)


def test_nobody_there_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ConnectionRefusedError):
        refuse_silence(address, timeout_s=5.0)


def test_a_server_that_says_nothing_is_refused() -> None:
    with server(None) as address, pytest.raises(TimeoutError):
        refuse_silence(address, timeout_s=0.05)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-x\r\n", b""])
def test_a_server_of_another_kind_is_refused(answer: bytes) -> None:
    with server(answer) as address, pytest.raises(ConnectionError, match="not a Ray cluster"):
        refuse_silence(address, timeout_s=5.0)


def test_the_address_of_the_environment_stands_for_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(b"") as address:
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(ConnectionError, match="not a Ray cluster"):
            refuse_silence("auto", timeout_s=5.0)


@pytest.mark.parametrize(
    "address", ["local", "127.0.0.1:6379", "localhost:6379", "ray://[::1]:10001"]
)
def test_a_cluster_of_this_machine_alone_is_kept_on_loopback(address: str) -> None:
    assert environment_for(address) == {**ENVIRONMENT, **LOOPBACK}


@pytest.mark.parametrize("address", ["10.0.0.7:6379", "head:6379", "ray://head:10001"])
def test_the_other_machines_of_a_cluster_can_reach_this_process(address: str) -> None:
    assert environment_for(address) == ENVIRONMENT
    assert not set(LOOPBACK) & set(ENVIRONMENT)


INTERRUPTED = """
import os, signal, sys, threading, time
import psutil

def interrupt():
    while not any(c.name() == "raylet" for c in psutil.Process().children()):
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)

from cluster.ray_cluster import ray_cluster
threading.Thread(target=interrupt, daemon=True).start()
try:
    with ray_cluster("local"):
        time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.ray
def test_a_cluster_that_is_interrupted_while_it_starts_leaves_no_process() -> None:
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, MARK: mark},
    )
    assert done.stdout == "interrupted\n", done.stderr
    _, alive = psutil.wait_procs(marked(mark), timeout=10)
    assert [p.cmdline() for p in alive] == []


LEAN = """
import psutil, ray
from cluster.ray_cluster import ray_cluster

with ray_cluster("local"):
    print(ray.get(ray.remote(lambda: "works").remote()))
    processes = psutil.Process().children(recursive=True)
    scripts = {part.rpartition("/")[2] for p in processes for part in p.cmdline()}
    print(sorted(scripts & {"dashboard.py", "monitor.py", "log_monitor.py", "gcs_server"}))
"""


@pytest.mark.ray
def test_a_cluster_of_its_own_starts_nothing_that_nobody_looks_at() -> None:
    """Each process takes a core for a second, and the end waits for it."""
    command = [sys.executable, "-c", LEAN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "works\n['gcs_server']\n", done.stderr
