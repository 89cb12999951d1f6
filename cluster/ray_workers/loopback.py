"""Keeping a Ray cluster of this machine to itself: all of its servers listen on loopback only.

Ray decides where to listen by the address of its node, and that by a setting which it reads from
the environment once, when it is imported. A process may have imported it long before, this one's
user as well as we. So the setting is made in both places: in the environment, for the processes
that will be started, and in the Ray that is imported here.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Iterator

from tuner.errors import TunerError

LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""For all its name, this is what makes every listener of a local cluster bind to 127.0.0.1 on
Linux; `_node_ip_address` does not. Other machines do not reach such a process."""
_CONSTANT = "ENABLE_RAY_CLUSTER"
"""Where `ray._private.ray_constants` keeps it from its import on."""


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """Within it this process starts Ray clusters on loopback and joins such, whenever Ray was
    imported. Afterwards it can join one of several machines again.

    Raises:
        TunerError: this version of Ray decides in another way.
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
    """Look where the Ray that this process is connected to listens.

    Raises:
        TunerError: not on loopback.
    """
    import ray

    address = ray.util.get_node_ip_address()
    if not is_loopback(address):
        raise TunerError(f"an embedded Ray would listen on {address}, not on loopback only")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
