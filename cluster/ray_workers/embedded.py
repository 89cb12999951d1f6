"""Starts and ends a Ray cluster of this process alone, on a machine that others may keep busy."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cluster.ray_workers.submitted import is_submitted
from tuner.errors import TunerError, first_line
from tuner.search_path import current_folder_last, is_in_current_folder

if TYPE_CHECKING:
    import psutil

_log = logging.getLogger(__name__)

_GONE_S = 2.0
_SERVERS = ("raylet", "gcs_server")
_OBJECT_STORE_BYTES = 256 << 20
_SOCKET_BYTES = 107
"""The longest path of a socket."""
_BELOW = len("/ray/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store.12")
"""What Ray adds to its folder to name a socket."""
_SHORT = ("/tmp", "/var/tmp", "/dev/shm")


def start_patiently(start: Callable[[], None]) -> None:
    """Start a cluster, and once more where it is not up in time, which Ray waits for half a minute:
    by then, most of what it reads is in memory.

    Raises:
        TunerError: it does not start.
    """
    for again in (False, True):
        try:
            start()
            return
        except Exception as error:  # Ray raises just that where a node is not up in time
            if not _was_slow(error):
                raise
            if again:
                raise TunerError(
                    f"an embedded Ray cluster does not start, tried twice: {first_line(error)} "
                    "Is the machine very busy? Try again later"
                ) from error
            _log.info("Ray is started once more: %s", first_line(error))
            _clear()


def local_settings(measure_slots: int) -> dict[str, Any]:
    """Arguments of `ray.init`."""
    from spaces.targets.backends import MEASURE

    return {
        "include_dashboard": False,
        "log_to_driver": False,
        "logging_level": logging.ERROR,
        "object_store_memory": _OBJECT_STORE_BYTES,
        "resources": {MEASURE: measure_slots},
        "job_config": job_config(same_python=True),
        "_temp_dir": short_folder(os.environ),
    }


def _was_slow(error: Exception) -> bool:
    """Whether an error may be one of a cluster that was not up in time."""
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    return not isinstance(error, TunerError | ValueError | OSError)


def _clear() -> None:
    """End what a start that failed has left."""
    import ray

    with no_process_left():
        ray.shutdown()


def job_config(*, same_python: bool) -> Any:
    """A job whose workers look for modules in this process's current folder last, or not at all:
    Ray would have them look there first.

    Args:
        same_python: whether all workers run on this machine, with this Python.
    """
    from ray.job_config import JobConfig

    if is_in_current_folder() or is_submitted(os.environ):
        return JobConfig()
    # Ray puts each of these before all others; it leaves the current folder to its clients.
    path = current_folder_last(sys.path) if same_python else []
    return JobConfig(_client_job=True, _py_driver_sys_path=path[::-1])


def short_folder(environ: Mapping[str, str]) -> str | None:
    """The folder for Ray's files where its usual one will not do; None where that will.

    A path of a socket is short, and Ray takes letters of ASCII only.
    """
    usual = environ.get("RAY_TMPDIR", environ.get("TMPDIR", _SHORT[0]))
    if usual.isascii() and len(usual) + _BELOW <= _SOCKET_BYTES:
        return None
    found = next((folder for folder in _SHORT if os.access(folder, os.W_OK | os.X_OK)), None)
    if found is None:
        raise TunerError(f"Ray cannot have its sockets in {usual}: set TMPDIR to a shorter path")
    return f"{found}/ray"


@contextlib.contextmanager
def no_process_left() -> Iterator[None]:
    """End the processes that Ray would leave behind at the end of an embedded cluster.

    Agents that were still starting when their raylet went stay for minutes, and servers whose start
    was interrupted or took too long are not known to Ray yet.
    """
    import psutil

    helpers = [c for server in _servers() for c in server.children()]
    yield
    for server in _servers():
        with contextlib.suppress(psutil.Error):
            server.suspend()  # it must not start another helper meanwhile
            helpers += [server, *server.children()]
            server.kill()
    _, alive = psutil.wait_procs(helpers, timeout=_GONE_S)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _servers() -> list[psutil.Process]:
    """The servers of Ray that this process started."""
    import psutil

    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if child.name() in _SERVERS and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found
