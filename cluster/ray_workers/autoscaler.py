"""Ray's autoscaler: requests for machines, and its reports."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import ray

from cluster.ray_workers.nodes import one_of

_ANSWER_S = 10.0


class RayAutoscaler:
    """Ray's autoscaler (its version 2, of `ray up` and KubeRay); see `device_wait.Autoscaler`.

    It starts machines for tasks that wait.
    """

    @contextlib.contextmanager
    def asked(self, resource: str) -> Iterator[None]:
        """See `device_wait.Autoscaler`; a task waits for the resource, and then does nothing."""
        waiting = ray.remote(_nothing).options(num_cpus=0, **one_of(resource)).remote()
        try:
            yield
        finally:
            ray.cancel(waiting, force=True)

    def in_vain(self, resource: str) -> bool:
        """See `device_wait.Autoscaler`. Ray has no public interface for this; False where its
        internal one has changed."""
        try:
            from ray.experimental.internal_kv import internal_kv_get_gcs_client

            said = internal_kv_get_gcs_client().get_cluster_status(timeout_s=_ANSWER_S)
            return starts_none(said, resource)
        except Exception:
            return False


def starts_none(said: bytes, resource: str) -> bool:
    """Whether an autoscaler can start no machine for a request of one unit of a resource.

    False as long as a machine is on its way: it may have the resource, promised to an earlier
    request.

    Args:
        said: the serialized answer of Ray's `get_cluster_status`.
    """
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

    state = GetClusterStatusReply.FromString(said).autoscaling_state
    if state.pending_instance_requests or state.pending_instances:
        return False
    return {resource: 1.0} in [dict(r.resources_bundle) for r in state.infeasible_resource_requests]


def _nothing() -> None:
    """Do nothing, on a machine with room for it."""
