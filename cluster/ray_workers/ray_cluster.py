"""Connects to a Ray cluster: the one that the user named, or an embedded one on loopback."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterator

from cluster.ray_workers.embedded import (
    job_config,
    local_settings,
    no_process_left,
    start_patiently,
)
from cluster.ray_workers.lean_head import lean_head
from cluster.ray_workers.loopback import LOOPBACK, is_loopback, on_loopback, refuse_elsewhere
from tuner import checks
from tuner.errors import TunerError, UsageError, first_line

# Ray reads these when it starts, on every cluster that we use.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's workers are polite by default; a kernel that is timed should not be.
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
}
_CONNECT_S = 5.0
_TOKEN_HINT = " (a cluster with tokens needs RAY_AUTH_MODE=token)"
# The head of a Ray cluster speaks gRPC, so it first sends a frame of HTTP/2 settings.
_HTTP2_SETTINGS = b"\0\0\0\4\0\0\0\0\0"
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _HTTP2_SETTINGS


@contextlib.contextmanager
def ray_cluster(address: str, *, measure_slots: int = 1) -> Iterator[None]:
    """Connect to a cluster for the length of a `with` block.

    Args:
        address: `local` starts a cluster on this machine; `auto` joins the cluster that this
            process runs in, or else starts one; `HOST:PORT` names a cluster.
        measure_slots: number of kernels that an embedded cluster may time at once.

    Raises:
        TunerError: no cluster answers there, none can be started, or this process is already
            connected to one.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    embedded = is_embedded(address)
    with on_loopback() if keeps_to_loopback(address) else contextlib.nullcontext():
        import ray

        if ray.is_initialized():  # by our caller: that connection is not ours to shut down
            raise TunerError(
                "this process is connected to a Ray cluster already: call ray.shutdown() first"
            )
        try:
            _connect(address, embedded, measure_slots)
            yield
        finally:
            with no_process_left() if embedded else contextlib.nullcontext():
                ray.shutdown()


def is_embedded(address: str) -> bool:
    """Whether an address means a cluster of this process alone."""
    return _resolve(address) == "local"


def _connect(address: str, embedded: bool, measure_slots: int) -> None:
    import ray

    try:
        if embedded:
            start_patiently(lambda: _start(measure_slots))
            refuse_elsewhere()
        else:
            refuse_silence(address, timeout_s=_CONNECT_S)
            config = job_config(same_python=False)
            ray.init(address, job_config=config, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, OSError, TimeoutError) as error:
        where = "an embedded Ray cluster does not start" if embedded else f"no Ray at {address}"
        nobody = isinstance(error, ConnectionRefusedError | TimeoutError | socket.gaierror)
        tokens = not (embedded or nobody or "RAY_AUTH_MODE" in os.environ)
        hint = _TOKEN_HINT if tokens else ""
        raise TunerError(f"{where}: {first_line(error)}{hint}") from error


def _start(measure_slots: int) -> None:
    import ray

    with lean_head():
        # Say "local": without it, a stale address file of a dead cluster would be tried.
        ray.init("local", **local_settings(measure_slots))


def keeps_to_loopback(address: str) -> bool:
    """Whether this process and a cluster talk over loopback only, which no other machine reaches.

    An existing cluster may listen on this machine's loopback and on other networks too, as a user
    declares by `RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=1`. An embedded cluster never does.
    """
    if is_embedded(address):
        return True
    chosen = {name: os.environ.get(name, value) for name, value in LOOPBACK.items()}
    return chosen == LOOPBACK and is_loopback(_host_and_port(_resolve(address))[0])


def _resolve(address: str) -> str:
    """An address with `auto` resolved: the cluster that the environment names, else `local`.

    Raises:
        UsageError: the environment names none.
    """
    if address != "auto":
        return address
    try:
        return checks.address(os.environ.get("RAY_ADDRESS") or "local")
    except UsageError as error:
        raise UsageError(f"RAY_ADDRESS: {error}") from error


def _host_and_port(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    return host.strip("[]"), port


def refuse_silence(address: str, *, timeout_s: float) -> None:
    """Check that Ray may be there: Ray itself tries for minutes before it reports that it is not.

    Raises:
        OSError: nothing answers within `timeout_s` (`TimeoutError`), or the answer is not Ray's.
    """
    host, port = _host_and_port(_resolve(address))
    if not host or not port.isdigit():
        return
    with socket.create_connection((host, int(port)), timeout=timeout_s) as line:
        if os.environ.get("RAY_USE_TLS", "0") != "0":
            return  # it would ask for a certificate first
        line.sendall(_HTTP2_HELLO)
        answer = b""
        while len(answer) < len(_HTTP2_SETTINGS) and (more := line.recv(64)):
            answer += more
        if answer[3:4] != _HTTP2_SETTINGS[3:4]:
            raise ConnectionError("who answers there is not a Ray cluster")
