"""How many workers a cluster should have: as its machines come and go, and as work is left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.fleet import Cluster, Crew, Need, Node, crew, reachable

CPU_NODE = Node("a", {"CPU": 8.0, "measure": 1.0})
GPU_NODE = Node("g", {"CPU": 4.0, "GPU": 2.0})
ON_CPU = Need("measure", trials_left=1000)
ON_GPU = Need("GPU", trials_left=1000)


def test_one_machine_has_a_runner_for_its_device_and_shares_its_cpus() -> None:
    assert crew(Cluster([CPU_NODE]), ON_CPU) == Crew(runners=1, builders=8, space_workers=2)


def test_each_device_has_a_runner() -> None:
    nodes = [Node(name, {"CPU": 4.0, "GPU": 2.0}) for name in "abc"]
    assert crew(Cluster(nodes), ON_GPU).runners == 6


def test_a_machine_that_will_leave_does_not_count() -> None:
    leaving = Node("b", {"CPU": 8.0, "measure": 1.0}, leaves_in_s=20.0)
    assert crew(Cluster([CPU_NODE, leaving]), ON_CPU) == crew(Cluster([CPU_NODE]), ON_CPU)


def test_without_devices_one_runner_waits_for_one() -> None:
    assert crew(Cluster([Node("a", {"CPU": 2.0})]), ON_GPU).runners == 1


def test_a_cluster_that_grows_is_asked_for_what_the_work_is_worth() -> None:
    grows = Cluster([Node("head", {})], most={"GPU": 16.0, "CPU": 64.0})
    asked = crew(grows, ON_GPU)
    assert asked.runners == 16
    assert asked.builders == 32
    assert crew(grows, Need("GPU", trials_left=40)).runners == 2
    assert crew(grows, Need("GPU", trials_left=0)).runners == 1


def test_it_is_never_asked_for_more_than_it_can_provide() -> None:
    few_cpus = Cluster([GPU_NODE], most={"GPU": 4.0, "CPU": 2.0})
    asked = crew(few_cpus, Need("GPU", trials_left=10_000))
    assert asked.runners == 4
    assert asked.builders == 8


def test_the_user_may_allow_fewer_devices() -> None:
    need = Need("GPU", trials_left=10_000, devices=3)
    assert crew(Cluster([GPU_NODE], most={"GPU": 16.0}), need).runners == 3
    assert crew(Cluster([GPU_NODE, GPU_NODE]), need).runners == 3


def test_where_the_autoscaler_does_not_tell_the_users_number_is_asked_for() -> None:
    assert crew(Cluster([GPU_NODE]), Need("GPU", trials_left=10_000, devices=5)).runners == 5


def test_many_cpus_do_not_build_far_ahead_of_one_device() -> None:
    assert crew(Cluster([Node("a", {"CPU": 128.0, "GPU": 1.0})]), ON_GPU).builders == 16


def test_runs_share_what_there_is() -> None:
    nodes = [Node(name, {"CPU": 4.0, "GPU": 1.0}) for name in "abcde"]
    crews = [crew(Cluster(nodes), Need("GPU", 1000, runs=2, place=n)) for n in range(2)]
    assert [c.runners for c in crews] == [3, 2]
    assert [c.builders for c in crews] == [10, 10]


def test_a_run_without_a_device_to_itself_waits_for_one() -> None:
    crews = [crew(Cluster([CPU_NODE]), Need("measure", 1000, runs=2, place=n)) for n in range(2)]
    assert [c.runners for c in crews] == [1, 1]


@pytest.mark.parametrize(("most", "found"), [(None, 2.0), ({"GPU": 8.0}, 8.0), ({}, 2.0)])
def test_what_can_be_reached_is_there_or_can_be_started(
    most: dict[str, float] | None, found: float
) -> None:
    assert reachable(Cluster([GPU_NODE], most), "GPU") == found


nodes = st.builds(
    Node,
    st.text(min_size=1, max_size=3),
    st.dictionaries(st.sampled_from(["CPU", "GPU", "measure"]), st.floats(0.0, 64.0)),
    st.none() | st.floats(0.0, 60.0),
)


@given(
    st.lists(nodes, max_size=6),
    st.none() | st.dictionaries(st.sampled_from(["CPU", "GPU"]), st.floats(0.0, 64.0)),
    st.integers(0, 10_000),
    st.none() | st.integers(1, 20),
)
def test_there_is_always_at_least_one_of_each_and_never_more_than_allowed(
    machines: list[Node], most: dict[str, float] | None, left: int, devices: int | None
) -> None:
    found = crew(Cluster(machines, most), Need("GPU", left, devices))
    assert min(found.runners, found.builders, found.space_workers) >= 1
    if devices is not None:
        assert found.runners <= devices
