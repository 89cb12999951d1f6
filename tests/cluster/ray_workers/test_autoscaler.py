"""What Ray's autoscaler says of machines that it will not start."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.ray


def said(*refused: dict[str, float], on_its_way: str = "") -> bytes:
    """The answer of an autoscaler that has no machine for some requests."""
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

    reply = GetClusterStatusReply()
    for bundle in refused:
        request = reply.autoscaling_state.infeasible_resource_requests.add()
        request.resources_bundle.update(bundle)
    if on_its_way:
        reply.autoscaling_state.pending_instance_requests.add(
            ray_node_type_name=on_its_way, count=1
        )
    return bytes(reply.SerializeToString())


@pytest.mark.parametrize(
    ("refused", "none"),
    [
        ([{"GPU": 1.0}], True),
        ([{"measure": 1.0}, {"GPU": 1.0}], True),
        ([], False),
        ([{"measure": 1.0}], False),
        ([{"GPU": 8.0, "CPU": 64.0}], False),
    ],
)
def test_it_starts_none_where_it_has_refused_just_that(
    refused: list[dict[str, float]], none: bool
) -> None:
    from cluster.ray_workers.autoscaler import starts_none

    assert starts_none(said(*refused), "GPU") == none


def test_a_machine_on_its_way_may_have_what_is_asked_for() -> None:
    from cluster.ray_workers.autoscaler import starts_none

    assert not starts_none(said({"GPU": 1.0}, on_its_way="gpu_spot"), "GPU")
