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
from pathlib import Path

import psutil
import pytest

from benchmarks.fleet.guard import MARK, marked
from cluster.ray_workers.loopback import LOOPBACK
from cluster.ray_workers.ray_cluster import (
    is_embedded,
    keeps_to_loopback,
    ray_cluster,
    refuse_silence,
)
from tests.cluster.sockets import listeners, tree
from tuner.errors import TunerError, UsageError

ROOT = Path(__file__).parents[3]
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


@pytest.mark.parametrize("named", ["ray://10.0.0.7:10001", "ray://head", "head"])
def test_an_address_of_the_environment_that_names_no_cluster_is_refused(
    monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", named)
    with pytest.raises(UsageError, match=f"RAY_ADDRESS: .*{named}"):
        is_embedded("auto")
    assert is_embedded("local")


def test_an_empty_address_of_the_environment_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "")
    assert is_embedded("auto")


@pytest.mark.parametrize(
    "address", ["local", "127.0.0.1:6379", "localhost:6379", "ray://[::1]:10001"]
)
def test_a_cluster_of_this_machine_alone_is_kept_on_loopback(address: str) -> None:
    assert keeps_to_loopback(address)


@pytest.mark.parametrize("address", ["10.0.0.7:6379", "head:6379", "ray://head:10001"])
def test_the_other_machines_of_a_cluster_can_reach_this_process(address: str) -> None:
    assert not keeps_to_loopback(address)


def test_who_says_that_others_reach_the_cluster_has_it_so_unless_it_is_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in LOOPBACK:
        monkeypatch.setenv(name, "1")
    assert not keeps_to_loopback("127.0.0.1:6379")
    assert keeps_to_loopback("local")


@pytest.mark.ray
def test_the_cluster_of_these_tests_listens_on_loopback_only(embedded_ray: None) -> None:
    """Whichever test imported Ray first."""
    import ray

    assert ray.get(ray.remote(lambda: 42).remote()) == 42
    found = listeners(tree())
    assert {"raylet", "gcs_server"} <= {one.process for one in found}
    assert [one for one in found if one.outside] == []


@pytest.mark.ray
def test_a_cluster_that_somebody_else_uses_is_refused_and_left_alone(embedded_ray: None) -> None:
    import ray

    with (
        pytest.raises(TunerError, match="connected to a Ray cluster already"),
        ray_cluster("local"),
    ):
        pytest.fail("a second cluster in one process")
    assert ray.get(ray.remote(lambda: 42).remote()) == 42


INTERRUPTED = """
import os, signal, sys, threading, time
import psutil

def interrupt():
    while not any(c.name() == "raylet" for c in psutil.Process().children()):
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)

from cluster.ray_workers.ray_cluster import ray_cluster
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
import os, psutil, ray
from ray._private import ray_constants
from cluster.ray_workers.ray_cluster import ray_cluster
from tests.cluster.sockets import listeners, tree

def settings():
    return os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"], ray_constants.ENABLE_RAY_CLUSTER

before = settings()
with ray_cluster("local"):
    print(ray.get(ray.remote(lambda: "works").remote()))
    print([one for one in listeners(tree()) if one.outside])
    processes = psutil.Process().children(recursive=True)
    scripts = {part.rpartition("/")[2] for p in processes for part in p.cmdline()}
    print(sorted(scripts & {"dashboard.py", "monitor.py", "log_monitor.py", "gcs_server"}))
print(settings() == before)
"""


@pytest.fixture(scope="module")
def lean() -> list[str]:
    """What a process says of a cluster of its own that had imported Ray before, and whose
    environment asks for a cluster that others reach."""
    done = subprocess.run(
        [sys.executable, "-c", LEAN],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **dict.fromkeys(LOOPBACK, "1")},
        cwd=ROOT,
    )
    said = done.stdout.splitlines()
    assert len(said) == 4, done.stderr
    return said


@pytest.mark.ray
def test_a_cluster_of_its_own_starts_nothing_that_nobody_looks_at(lean: list[str]) -> None:
    """Each process takes a core for a second, and the end waits for it."""
    works, _, processes, _ = lean
    assert works == "works"
    assert processes == "['gcs_server']"


@pytest.mark.ray
def test_a_cluster_of_its_own_listens_on_loopback_only_whenever_ray_was_imported(
    lean: list[str],
) -> None:
    assert lean[1] == "[]"


@pytest.mark.ray
def test_a_process_can_join_a_cluster_of_several_machines_after_one_of_its_own(
    lean: list[str],
) -> None:
    assert lean[3] == "True"
