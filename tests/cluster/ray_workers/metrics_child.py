"""Feeds a run's figures to the cluster that the environment names, until its input ends."""

from __future__ import annotations

import sys
from dataclasses import replace

from cluster.ray_workers.metrics import RunMetrics
from cluster.ray_workers.ray_cluster import ray_cluster
from cluster.scaling.pool_policy import PoolCounts
from tuner.candidate import Candidate, CandidateKind
from tuner.dynamic.dispatch_tree import Leaf
from tuner.dynamic.kernel_set import KernelSet, ShapeTimes
from tuner.record import Measurement, Record, Status, Trial
from tuner.task import Task
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot
from tuner.view.task_view import TaskView

SNAPSHOT = Snapshot(
    phase=Phase.SEARCH,
    elapsed_s=10.0,
    time_budget_s=60.0,
    trials_budget=100,
    trials_per_s=4.2,
    tasks=(
        TaskView("t", "dense", 2.0, 0.0, {Status.OK: 38, Status.TIMEOUT: 2}, 4e-6, 3e-6),
        TaskView("u", "no better than before", 1.0, 0.0, {Status.OK: 2}, 2e-6, 3e-6),
        TaskView("v", "not measured"),
    ),
    pairwise_accuracy=0.8,
    utilisation={"runner": {"busy": 3.0, "starting": 1.0}},
    trials_left=58,
)
TIMES = ShapeTimes((("T", 5),), 1.0, 0, 3e-6, 3e-6, True)
KERNELS = KernelSet((), Leaf(0), (1.0,), 1.0, (TIMES,), None, 0)


def main() -> None:
    """Say on which port the node exports, then feed."""
    import ray

    with ray_cluster("auto"):
        (port,) = {node["MetricsExportPort"] for node in ray.nodes()}
        metrics = RunMetrics("a-tést")
        metrics.on_start([Task("t", "größe", "{}", "{}")])
        trial = Trial("t", Candidate(CandidateKind.TRACE, "[]", "s"))
        good = Measurement(Status.OK, (2e-6,), build_s=0.3, run_s=0.03)
        metrics.on_record(Record(trial, good), 2e-6)
        metrics.on_record(Record(replace(trial, rung=1), good), 2e-6)  # of the same build
        metrics.on_kernels("t", KERNELS)
        metrics.on_snapshot(SNAPSHOT)
        metrics.on_pools({"builder": PoolCounts(ready=3, wanted=5, waiting=7, lost=1)})
        print(port, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
