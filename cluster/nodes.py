"""What Ray knows of a cluster's machines."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import ray

from cluster.fleet import Cluster, Node

_NO_DEADLINE_S = 30.0
"""What a machine that drains without saying for how long is given."""


def look(wall: Callable[[], float] = time.time) -> Cluster:
    """The machines that live as far as Ray knows, which learns of a loss after some ten seconds."""
    draining = _draining()
    nodes = [
        Node(
            n["NodeID"],
            {name: float(value) for name, value in n["Resources"].items()},
            _leaves_in_s(draining[n["NodeID"]], wall()) if n["NodeID"] in draining else None,
        )
        for n in ray.nodes()
        if n["Alive"]
    ]
    return Cluster(nodes, _most())


def _leaves_in_s(deadline_ms: int, now_s: float) -> float:
    return max(0.0, deadline_ms / 1e3 - now_s) if deadline_ms else _NO_DEADLINE_S


def _draining() -> Mapping[str, int]:
    """Machines that will leave, with when: milliseconds since the epoch, 0 where that is open.

    No public interface tells; where Ray has changed its own, nothing is known of leaving.
    """
    try:
        from ray._private.state import state

        return dict(state.get_draining_nodes())
    except (ImportError, AttributeError):
        return {}


def _most() -> Mapping[str, float] | None:
    """The most of each resource that the cluster's autoscaler can provide.

    None where there is no autoscaler, or it does not tell: the first version does not.
    """
    try:
        from ray._private.state import state

        most = state.get_max_resources_from_cluster_config()
    except (ImportError, AttributeError):
        return None
    return None if most is None else {name: float(value) for name, value in most.items()}
