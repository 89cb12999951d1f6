"""A run's figures are found where Prometheus looks for them."""

from __future__ import annotations

import re
import time
import urllib.request
from dataclasses import replace

import pytest

from cluster.scaling.pool_policy import PoolCounts
from tuner.candidate import Candidate, CandidateKind
from tuner.dynamic.dispatch_tree import Leaf
from tuner.dynamic.kernel_set import KernelSet, ShapeTimes
from tuner.record import Measurement, Record, Status, Trial
from tuner.task import Task
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot
from tuner.view.task_view import TaskView

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("embedded_ray")]

_PATIENCE_S = 60.0
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


def scraped() -> str:
    """What the node's metrics port says."""
    import ray

    (port,) = {node["MetricsExportPort"] for node in ray.nodes()}
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.long
def test_a_scrape_finds_where_a_run_is() -> None:
    from cluster.ray_workers.metrics import RunMetrics

    metrics = RunMetrics("a-tést")
    metrics.on_start([Task("t", "größe", "{}", "{}")])
    trial = Trial("t", Candidate(CandidateKind.TRACE, "[]", "s"))
    good = Measurement(Status.OK, (2e-6,), build_s=0.3, run_s=0.03)
    metrics.on_record(Record(trial, good), 2e-6)
    metrics.on_record(Record(replace(trial, rung=1), good), 2e-6)  # of the same build
    metrics.on_kernels("t", KERNELS)
    metrics.on_snapshot(SNAPSHOT)
    metrics.on_pools({"builder": PoolCounts(ready=3, wanted=5, waiting=7, lost=1)})
    wanted = {
        "ray_tuner_trials": "42",
        "ray_tuner_gain": "1.25",
        "ray_tuner_best_us": "3.0",
        "ray_tuner_model_us": "8.0",
        "ray_tuner_budget_share": "0.42",
        "ray_tuner_trials_left": "58",
        "ray_tuner_pairwise_accuracy": "0.8",
        "ray_tuner_workers": "3",
        "ray_tuner_workers_wanted": "5",
        "ray_tuner_workers_lost": "1",
        "ray_tuner_queued": "7",
        "ray_tuner_busy_share": "0.75",
        "ray_tuner_slot_s": "1.0",
        "ray_tuner_build_s_count": "1",
        "ray_tuner_run_s_count": "2",
    }
    until_s = time.monotonic() + _PATIENCE_S
    missing = set(wanted)
    while missing and time.monotonic() < until_s:
        time.sleep(1.0)
        text = scraped()
        missing = {
            name
            for name, value in wanted.items()
            if not re.search(rf'^{name}{{.*run="a-t%C3%A9st".*}} {value}', text, re.MULTILINE)
        }
    assert not missing
