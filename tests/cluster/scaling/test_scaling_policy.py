"""How many workers a cluster should have: as its machines come and go, and as work is left."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cluster.scaling.scaling_policy import (
    LEAST_BUILDERS,
    BuildRatio,
    Cluster,
    Demand,
    Growth,
    Node,
    Reserve,
    Share,
    WorkerCounts,
    keeping_order,
    worker_counts,
)

CPU_NODE = Node("a", {"CPU": 8.0, "measure": 1.0})
GPU_NODE = Node("g", {"CPU": 4.0, "GPU": 2.0})
ON_CPU = Demand("measure", trials_left=1000)
ON_GPU = Demand("GPU", trials_left=1000)


def test_one_machine_has_a_runner_for_its_device_and_shares_its_cpus() -> None:
    assert worker_counts(Cluster([CPU_NODE]), ON_CPU) == WorkerCounts(
        runners=1, builders=8, space_workers=2
    )


def test_each_device_has_a_runner() -> None:
    nodes = [Node(name, {"CPU": 4.0, "GPU": 2.0}) for name in "abc"]
    assert worker_counts(Cluster(nodes), ON_GPU).runners == 6


def test_a_machine_that_will_leave_does_not_count() -> None:
    leaving = Node("b", {"CPU": 8.0, "measure": 1.0}, leaves_in_s=20.0)
    assert worker_counts(Cluster([CPU_NODE, leaving]), ON_CPU) == worker_counts(
        Cluster([CPU_NODE]), ON_CPU
    )


def test_without_devices_one_runner_waits_for_one() -> None:
    assert worker_counts(Cluster([Node("a", {"CPU": 2.0})]), ON_GPU).runners == 1


def test_a_cluster_that_grows_is_asked_for_more_as_long_as_there_is_work() -> None:
    empty = Cluster([Node("head", {})], grows=True)
    assert worker_counts(empty, ON_GPU) == WorkerCounts(runners=1, builders=2, space_workers=1)
    larger = Cluster([GPU_NODE, GPU_NODE], grows=True)
    assert worker_counts(larger, ON_GPU).runners == 9
    assert worker_counts(larger, ON_GPU).builders == 18
    assert worker_counts(larger, Demand("GPU", trials_left=160)).runners == 5


def test_with_little_left_to_measure_a_cluster_that_grows_is_let_go() -> None:
    many = [Node(name, {"CPU": 32.0, "GPU": 1.0}) for name in "abcd"]
    assert worker_counts(Cluster(many, grows=True), Demand("GPU", 10_000)) == WorkerCounts(
        9, 128, 32
    )
    assert worker_counts(Cluster(many, grows=True), Demand("GPU", 64)) == WorkerCounts(2, 4, 1)
    assert worker_counts(Cluster(many, grows=True), Demand("GPU", 0)) == WorkerCounts(1, 2, 1)
    assert worker_counts(Cluster(many, grows=True, full=True), Demand("GPU", 64)) == WorkerCounts(
        2, 4, 1
    )
    assert worker_counts(Cluster(many), Demand("GPU", 0)) == WorkerCounts(4, 64, 32), (
        "a fixed one is not"
    )


def test_a_runner_has_the_builders_that_keep_it_busy() -> None:
    """nvcc takes seconds, and a measurement on a GPU some hundredths of one."""
    nodes = [Node(name, {"CPU": 4.0, "GPU": 1.0}) for name in "ab"]
    wanted = worker_counts(Cluster(nodes, grows=True), replace(ON_GPU, builders=20))
    assert wanted.builders == 20 * wanted.runners
    fixed = [Node("a", {"CPU": 64.0, "GPU": 1.0})]
    assert worker_counts(Cluster(fixed), ON_GPU).builders == 16
    assert worker_counts(Cluster(fixed), replace(ON_GPU, builders=20)).builders == 20
    few = replace(ON_GPU, builders=20, trials_left=8)
    assert worker_counts(Cluster(fixed, grows=True, full=True), few).builders == 2


def test_no_more_builders_are_asked_for_than_have_something_to_build() -> None:
    nodes = [Node("a", {"CPU": 2.0, "GPU": 1.0})]
    for left, builders in ((10_000, 150), (80, 10), (20, 3), (1, LEAST_BUILDERS)):
        wanted = worker_counts(
            Cluster(nodes, grows=True), Demand("GPU", trials_left=left, builders=50)
        )
        assert wanted.builders == builders


def test_how_many_that_are_is_told_by_what_builds_and_measurements_took() -> None:
    ratio = BuildRatio()
    assert ratio.builders == 2
    for _ in range(7):
        ratio.built(2.0)
        ratio.ran(0.1)
    assert ratio.builders == 2, "a few do not tell"
    ratio.built(2.0)
    ratio.ran(0.1)
    assert ratio.builders == 20
    ratio.ran(30.0)
    assert ratio.builders == 20, "one that hung does not count"
    for _ in range(64):
        ratio.ran(10.0)
    assert ratio.builders == 2
    for _ in range(64):
        ratio.ran(0.001)
    assert ratio.builders == 64


def test_one_that_grows_no_more_is_asked_for_no_more() -> None:
    full = Cluster([GPU_NODE, GPU_NODE], grows=True, full=True)
    assert worker_counts(full, ON_GPU) == worker_counts(Cluster([GPU_NODE, GPU_NODE]), ON_GPU)


def test_workers_of_all_kinds_leave_the_same_machines() -> None:
    """Those that only build before devices that nobody needs, and the head never."""
    nodes = [Node(name, {"CPU": 4.0, "GPU": 2.0}) for name in "dbc"]
    nodes += [Node("a", {"CPU": 8.0}), Node("e", {"CPU": 1.0, "node:__internal_head__": 1.0})]
    assert keeping_order(nodes, ON_GPU, runners=3) == ["e", "b", "c", "a", "d"]
    assert keeping_order(nodes, ON_GPU, runners=1) == ["e", "b", "a", "c", "d"]


def test_workers_are_kept_for_a_while_after_they_were_needed() -> None:
    reserve, fits = Reserve(), WorkerCounts(4, 8, 2)
    assert reserve.keep(WorkerCounts(9, 18, 5), fits, 0.0) == WorkerCounts(9, 18, 5)
    assert reserve.keep(WorkerCounts(2, 4, 1), fits, 1.0) == fits
    assert reserve.keep(WorkerCounts(3, 4, 1), fits, 15.0) == fits
    assert reserve.keep(WorkerCounts(1, 2, 1), fits, 40.0) == WorkerCounts(3, 4, 1)
    assert reserve.keep(WorkerCounts(1, 2, 1), fits, 90.0) == WorkerCounts(1, 2, 1)


def test_a_machine_that_is_gone_is_not_waited_for() -> None:
    reserve = Reserve()
    reserve.keep(WorkerCounts(4, 8, 2), WorkerCounts(4, 8, 2), 0.0)
    assert reserve.keep(WorkerCounts(2, 4, 1), WorkerCounts(2, 4, 1), 1.0) == WorkerCounts(2, 4, 1)


def test_the_user_may_allow_fewer_devices() -> None:
    demand = Demand("GPU", trials_left=10_000, devices=3)
    assert worker_counts(Cluster([GPU_NODE], grows=True), demand).runners == 3
    assert worker_counts(Cluster([GPU_NODE, GPU_NODE]), demand).runners == 3


def test_a_cluster_that_starts_no_machine_for_what_waits_is_as_large_as_it_may_be() -> None:
    growth = Growth()
    growth.observe(1, 3, 0.0)
    growth.observe(2, 5, 100.0)  # it has grown
    growth.observe(2, 5, 250.0)
    assert growth.goes_on(250.0)
    growth.observe(2, 5, 280.0)
    assert not growth.goes_on(280.0)
    assert growth.goes_on(1200.0)


def test_a_wait_for_the_very_first_device_is_no_sign() -> None:
    growth = Growth()
    growth.observe(0, 1, 0.0)
    growth.observe(0, 1, 500.0)
    assert growth.goes_on(500.0)


def test_many_cpus_do_not_build_far_ahead_of_one_device() -> None:
    assert worker_counts(Cluster([Node("a", {"CPU": 128.0, "GPU": 1.0})]), ON_GPU).builders == 16


def shared(device: str, share: Share) -> Demand:
    return Demand(device, 1000, of_devices=share, of_cpus=share)


def test_runs_on_unlike_devices_share_the_cpus_alone() -> None:
    nodes = [Node(name, {"CPU": 4.0, "GPU": 1.0}) for name in "abcd"]
    found = worker_counts(Cluster(nodes), Demand("GPU", 1000, of_cpus=Share(2, 0)))
    assert (found.runners, found.builders) == (4, 8)


def test_runs_share_what_there_is() -> None:
    nodes = [Node(name, {"CPU": 4.0, "GPU": 1.0}) for name in "abcde"]
    counts = [worker_counts(Cluster(nodes), shared("GPU", Share(2, n))) for n in range(2)]
    assert [c.runners for c in counts] == [3, 2]
    assert [c.builders for c in counts] == [10, 10]


def test_a_run_without_a_device_to_itself_waits_for_one() -> None:
    counts = [worker_counts(Cluster([CPU_NODE]), shared("measure", Share(2, n))) for n in range(2)]
    assert [c.runners for c in counts] == [1, 1]


nodes = st.builds(
    Node,
    st.text(min_size=1, max_size=3),
    st.dictionaries(st.sampled_from(["CPU", "GPU", "measure"]), st.floats(0.0, 64.0)),
    st.none() | st.floats(0.0, 60.0),
)


@given(
    st.lists(nodes, max_size=6),
    st.booleans(),
    st.integers(0, 10_000),
    st.none() | st.integers(1, 20),
)
def test_there_is_always_at_least_one_of_each_and_never_more_than_allowed(
    machines: list[Node], grows: bool, left: int, devices: int | None
) -> None:
    found = worker_counts(Cluster(machines, grows), Demand("GPU", left, devices))
    assert min(found.runners, found.builders, found.space_workers) >= 1
    if devices is not None:
        assert found.runners <= devices
