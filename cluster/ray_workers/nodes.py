"""The machines of a cluster, as Ray knows them, and sooner by asking the machines."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import time
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Any

import ray

from cluster.scaling.scaling_policy import Cluster, Node
from spaces.targets.backends import BACKENDS, GPU

_NO_DEADLINE_S = 30.0
"""The time assumed until a machine that drains without a deadline is gone."""
_REACH_S = 0.5
_ASK_AGAIN_S = 5.0
_NODE_ID = "ray.io/node-id"
DEVICES = tuple({row.resource for row in BACKENDS})
"""Ray's names of the resources that kernels are measured on."""


_ASKED_AT_ONCE = 256
"""Addresses asked at a time: each takes a descriptor, and a process may have few."""

Address = tuple[str, int]


def reach(addresses: Collection[Address], timeout_s: float = _REACH_S) -> set[Address]:
    """The addresses at which a machine's Ray takes a connection.

    All are asked at the same time, so a hundred silent ones take as long as one. An address that
    this process has no socket for counts as reached: nothing speaks against it.
    """
    until_s = time.monotonic() + timeout_s
    reached: set[Address] = set()
    asked: dict[int, tuple[Address, socket.socket]] = {}
    answers = select.poll()
    with contextlib.ExitStack() as stack:
        for address in addresses:
            try:
                connection = stack.enter_context(_make_socket(address))
            except OSError:
                reached.add(address)
                continue
            if _begins(connection, address):
                asked[connection.fileno()] = address, connection
                answers.register(connection, select.POLLOUT)
        while asked and (left_s := until_s - time.monotonic()) > 0:
            for fd, _ in answers.poll(left_s * 1e3):
                answers.unregister(fd)
                address, connection = asked.pop(fd)
                if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    reached.add(address)
    return reached


def _make_socket(address: Address) -> socket.socket:
    connection = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    connection.setblocking(False)
    return connection


def _begins(connection: socket.socket, address: Address) -> bool:
    """Whether a connection can be begun: the name exists, and there is a route to it."""
    try:
        return connection.connect_ex(address) in (0, errno.EINPROGRESS)
    except OSError:
        return False


def one_of(resource: str) -> dict[str, Any]:
    """The Ray options with which a task or an actor requests one unit of a resource."""
    return {"num_gpus": 1} if resource == GPU else {"resources": {resource: 1}}


def alive() -> dict[str, Mapping[str, Any]]:
    """Ray's entry for each machine that lives as far as Ray knows, by its id."""
    return {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}


class NodeWatch:
    """Looks at the cluster, and checks suspected machines itself.

    Ray takes some fifteen seconds to see that a machine is gone, and until then it sends new
    workers there. Therefore a pool that loses a worker suspects its machine; a suspect that takes
    no connection counts as gone at once, and nothing is sent there. Machines whose devices differ
    from those that a run measures on count as machines without devices.

    Args:
        reach: gives those of some addresses, each with its port, that take a connection.
        alive: gives the machines that live as far as Ray knows.
        clock: seconds that never go back.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        reach: Callable[[Collection[Address]], set[Address]] = reach,
        alive: Callable[[], dict[str, Mapping[str, Any]]] = alive,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._reach, self._alive, self._clock, self._wall = reach, alive, clock, wall
        self._suspects: set[str] = set()
        self._gone: dict[str, float] = {}
        self._unlike: set[str] = set()

    def unlike(self, node: str) -> None:
        """Note that the devices of a machine are of another kind than the run's."""
        self._unlike.add(node)

    def suspect(self, node: str) -> None:
        """Suspect a machine, since a worker on it was lost."""
        if node:
            self._suspects.add(node)

    def look(self) -> Cluster:
        """The machines that live, as far as is known."""
        draining = _draining()
        alive = self._reachable()
        nodes = [
            Node(
                node,
                self._useful(node, found["Resources"]),
                _leaves_in_s(draining[node], self._wall()) if node in draining else None,
            )
            for node, found in alive.items()
        ]
        return Cluster(nodes, _grows())

    def avoid(self, *, unlike: bool = False) -> Mapping[str, Any]:
        """Options of a Ray actor that keep it away from machines that are gone.

        Args:
            unlike: also from machines with devices of another kind.
        """
        alive = self._reachable()
        avoided = {*self._gone, *(self._unlike & alive.keys() if unlike else ())}
        if not avoided:
            return {}
        return {"label_selector": {_NODE_ID: f"!in({','.join(sorted(avoided))})"}}

    def _useful(self, node: str, resources: Mapping[str, float]) -> dict[str, float]:
        none = DEVICES if node in self._unlike else ()
        return {name: float(value) for name, value in resources.items() if name not in none}

    def _reachable(self) -> dict[str, Mapping[str, Any]]:
        """Ray's entry for each machine that lives, without suspects that do not answer."""
        alive = self._alive()
        self._suspects &= alive.keys()
        self._gone = {n: asked_s for n, asked_s in self._gone.items() if n in alive}
        now_s = self._clock()
        lately = {n for n, asked_s in self._gone.items() if now_s - asked_s < _ASK_AGAIN_S}
        self._suspects -= lately
        asked = list(islice(self._suspects | (self._gone.keys() - lately), _ASKED_AT_ONCE))
        addresses = {node: _address(alive[node]) for node in asked}
        reached = self._reach(addresses.values()) if addresses else set()
        for node, address in addresses.items():
            if address in reached:
                self._gone.pop(node, None)
            else:
                self._gone[node] = now_s
        self._suspects.difference_update(asked)
        return {node: found for node, found in alive.items() if node not in self._gone}


def _address(found: Mapping[str, Any]) -> Address:
    return found["NodeManagerAddress"], found["NodeManagerPort"]


def _leaves_in_s(deadline_ms: int, now_s: float) -> float:
    return max(0.0, deadline_ms / 1e3 - now_s) if deadline_ms else _NO_DEADLINE_S


def _draining() -> Mapping[str, int]:
    """Machines that will leave, each with the time in milliseconds since the epoch, or 0 if open.

    There is no public interface for this; empty where Ray's internal one has changed.
    """
    try:
        from ray._private.state import state

        return dict(state.get_draining_nodes())
    except (ImportError, AttributeError):
        return {}


def _grows() -> bool:
    """Whether the cluster has Ray's autoscaler of version 2, which `ray up` and KubeRay start.
    Version 1 cannot be told from a cluster of fixed size."""
    try:
        from ray.autoscaler.v2.utils import is_autoscaler_v2

        return bool(is_autoscaler_v2(fetch_from_server=True))
    except Exception:  # not connected, or Ray's internals have changed: it does not grow then
        return False
