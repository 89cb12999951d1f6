"""Keeping a Ray cluster of this machine to itself: all of its servers listen on loopback only.

Ray listens on the address of its node, which depends on a setting that Ray reads from the
environment once, when it is imported. It may have been imported here long before, by us or by the
program that calls us. So the setting is made in two places: in the environment, for the processes
that will be started, and in the Ray that is imported here.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Iterator

from tuner.errors import TunerError

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Despite its name, this setting makes every listener of a local cluster bind to 127.0.0.1 on
Linux; `_node_ip_address` does not. Other machines cannot reach such a process."""
_CONSTANT = "ENABLE_RAY_CLUSTER"
"""The name of that setting in `ray._private.ray_constants`."""


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """Have this process start and join Ray clusters on loopback for the length of a block,
    whenever Ray was imported. Afterwards it can join a cluster of several machines again.

    Raises:
        TunerError: this version of Ray has no such setting.
    """
    before = {name: os.environ.get(name) for name in LOOPBACK}
    os.environ.update(LOOPBACK)
    try:
        from ray._private import ray_constants

        if not hasattr(ray_constants, _CONSTANT):
            raise TunerError("this version of Ray cannot be kept on loopback: use the pinned one")
        usual = getattr(ray_constants, _CONSTANT)
        setattr(ray_constants, _CONSTANT, False)
        try:
            yield
        finally:
            setattr(ray_constants, _CONSTANT, usual)
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def refuse_elsewhere() -> None:
    """Check that the Ray that this process is connected to listens on loopback.

    Raises:
        TunerError: it does not.
    """
    import ray

    address = ray.util.get_node_ip_address()
    if not is_loopback(address):
        raise TunerError(f"an embedded Ray would listen on {address}, not on loopback only")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
