"""What is said to Ray's autoscaler, and what it says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import ray

from cluster.ray_workers.nodes import one_of

_ANSWER_S = 10.0


class RayAutoscaler:
    """The second version of Ray's, as `ray up` and KubeRay start it; see `device_wait.Autoscaler`.

    It starts machines for tasks that wait.
    """

    @contextlib.contextmanager
    def asked(self, resource: str) -> Iterator[None]:
        """See `device_wait.Autoscaler`; the task does nothing once it has what it waits for."""
        waiting = ray.remote(_nothing).options(num_cpus=0, **one_of(resource)).remote()
        try:
            yield
        finally:
            ray.cancel(waiting, force=True)

    def in_vain(self, resource: str) -> bool:
        """See `device_wait.Autoscaler`. Ray has no public interface for this; where it has changed
        its own, nothing is known."""
        try:
            from ray.experimental.internal_kv import internal_kv_get_gcs_client

            said = internal_kv_get_gcs_client().get_cluster_status(timeout_s=_ANSWER_S)
            return starts_none(said, resource)
        except Exception:
            return False


def starts_none(said: bytes, resource: str) -> bool:
    """Whether an autoscaler has no machine to start for who waits for one of a resource.

    As long as a machine is on its way nothing is certain: it may have the resource, and others
    were promised it first.

    Args:
        said: the serialized answer of Ray's `get_cluster_status`.
    """
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

    state = GetClusterStatusReply.FromString(said).autoscaling_state
    if state.pending_instance_requests or state.pending_instances:
        return False
    return {resource: 1.0} in [dict(r.resources_bundle) for r in state.infeasible_resource_requests]


def _nothing() -> None:
    """Runs where there is room for it."""
