"""Getting hold of a Ray cluster: the one a user named, or an embedded one on loopback."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from typing import Any

from tuner.errors import TunerError

# Ray reads these when it starts. The first, for all its name, is what makes every listener of a
# local cluster bind to 127.0.0.1 on Linux; `_node_ip_address` does not.
ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's workers are polite by default; a kernel that is timed should not be.
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
}
_CONNECT_S = 5.0
_TOKEN_HINT = " (a cluster with tokens needs RAY_AUTH_MODE=token)"
_OBJECT_STORE_BYTES = 256 << 20


@contextlib.contextmanager
def ray_cluster(address: str, *, measure_slots: int = 1) -> Iterator[None]:
    """A connection to a cluster for the length of a `with` block.

    Args:
        address: `local` starts a cluster of this machine; `auto` takes the one that this
            process runs in, or else starts one; `HOST:PORT` names one.
        measure_slots: how many kernels an embedded cluster may time at once.

    Raises:
        TunerError: no cluster answers there, or none can be started.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import ray

    embedded = address == "local" or (address == "auto" and "RAY_ADDRESS" not in os.environ)
    try:
        if embedded:
            # "local" and not nothing: a stale address file of a dead cluster would be tried.
            ray.init("local", **_local_settings(measure_slots))
        else:
            _refuse_silence(address)
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, OSError, TimeoutError) as error:
        where = "an embedded Ray cluster does not start" if embedded else f"no Ray at {address}"
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        hint = "" if embedded or "RAY_AUTH_MODE" in os.environ else _TOKEN_HINT
        raise TunerError(f"{where}: {first[:200]}{hint}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _refuse_silence(address: str) -> None:
    """Ray itself tries an address for minutes before it says that nobody is there."""
    named = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    host, _, port = named.rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit():
        return
    with socket.create_connection((host, int(port)), timeout=_CONNECT_S):
        pass


def _local_settings(measure_slots: int) -> dict[str, Any]:
    from actors.ray_actors import MEASURE

    return {
        "include_dashboard": False,
        "log_to_driver": False,
        "logging_level": logging.ERROR,
        "object_store_memory": _OBJECT_STORE_BYTES,
        "resources": {MEASURE: measure_slots},
    }


def cluster_cpus() -> int:
    """CPUs that the cluster has now."""
    import ray

    return max(1, int(ray.cluster_resources().get("CPU", 1)))
