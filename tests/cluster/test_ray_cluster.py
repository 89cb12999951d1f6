"""Addresses where no Ray answers are told apart before Ray itself waits for minutes."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cluster.ray_cluster import refuse_silence

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


LEAVES_AT_ONCE = """
import psutil
from cluster.ray_cluster import ray_cluster
with ray_cluster("local"):
    (raylet,) = [c for c in psutil.Process().children() if c.name() == "raylet"]
    ours = psutil.Process().children(recursive=True)
    assert len(ours) > 2
left = [p for p in ours if p.is_running() and p.status() != "zombie"]
print("left", [p.cmdline() for p in left])
"""


@pytest.mark.ray
def test_a_cluster_that_is_left_as_soon_as_it_starts_leaves_no_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_AT_ONCE], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "left []\n", done.stdout + done.stderr
