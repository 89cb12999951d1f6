"""References on Ray: a message and a lease of their own, made elsewhere where they are lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.runner import Learned
from tests.contracts.references import (
    EFFORT,
    LONG_S,
    ReferencesContract,
    Referring,
    calls,
    make_reference,
    task,
)
from tuner.record import Measurement, Status
from tuner.task import Task

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("embedded_ray")]

VERBS = ("slow", "hopeless", "plain", "deadly", "deadly-once")


class Quick:
    """A worker of any kind whose own work is done at once, all but the references."""

    def __init__(self, tasks: list[Task], toolchain: str, device: str) -> None:
        self._toolchain, self._device = toolchain, device
        self._tasks = {task.key: task for task in tasks}
        self._known: set[str] = set()

    def ready(self) -> Any:
        from actors.ray_actors import About

        return About("node", self._device, self._toolchain)

    def beat(self) -> float:
        return 0.0

    def leave(self) -> None:
        """Keeps nothing on its machine."""

    def build(self, task_key: str, candidate: Any, deadline_s: float) -> tuple[Any, bytes]:
        from actors.ray_actors import Compiled

        return Compiled(0.1, "hash"), b"artifact"

    def learn(self, task_key: str, instance: Any, deadline_s: float) -> Learned:
        made = make_reference(self._tasks[task_key].name)
        self._known.add(task_key)
        return made

    def run(self, task_key: str, *more: Any) -> Measurement:
        if task_key not in self._known:
            return Measurement(Status.UNCHECKED, error="it was given before it was learned")
        return Measurement(Status.OK, (0.1, 0.1, 0.1))


@pytest.fixture(scope="module")
def referring(tmp_path_factory: pytest.TempPathFactory, embedded_ray: None) -> Iterator[Referring]:
    import ray

    import tests.contracts.references
    from cluster.ray_workers.ray_measurer import Leases, RayMeasurer, Starters
    from cluster.scaling.scaling_policy import WorkerCounts

    # Workers cannot import the tests: their classes travel whole.
    for module in (sys.modules[__name__], tests.contracts.references):
        ray.cloudpickle.register_pickle_by_value(module)
    folder: Path = tmp_path_factory.mktemp("references")
    tasks = {verb: task(verb, folder) for verb in VERBS}
    methods = {"build": ray.method(num_returns=2)(Quick.build)}
    worker = ray.remote(num_cpus=0, max_concurrency=2)(type("Worker", (Quick,), methods))

    def start_builder(name: str) -> Any:
        return worker.remote(list(tasks.values()), "the builder's", "")

    def start_runner(name: str) -> Any:
        return worker.remote(list(tasks.values()), "", "the runner's")

    leases = Leases(build_s=30.0, run_s=0.8 * LONG_S, learn_s=30.0)
    measurer = RayMeasurer(Starters(start_builder, start_runner), effort=EFFORT, leases=leases)
    measurer.resize(WorkerCounts(runners=1, builders=1, space_workers=0))
    yield Referring(measurer, tasks)
    measurer.close()


class TestReferencesOnRay(ReferencesContract):
    """On actors, with leases for runs that are shorter than a reference takes."""


def test_a_record_names_the_toolchain_of_its_builder_and_the_device_of_its_runner(
    referring: Referring,
) -> None:
    """A machine with a device need not have the compiler."""
    (record,) = referring.measure("plain", 30)
    where = record.provenance
    assert (where.toolchain, where.device) == ("the builder's", "the runner's")
    assert referring.measurer.toolchain() == "the builder's"


def test_one_that_is_lost_with_its_worker_is_made_by_another(referring: Referring) -> None:
    (record,) = referring.measure("deadly-once", 1)
    assert (record.measurement.status, record.attempt) == (Status.OK, 1)
    assert calls(referring.tasks["deadly-once"]) == 2


def test_one_that_takes_every_worker_with_it_is_the_end_of_its_task_alone(
    referring: Referring,
) -> None:
    for record in referring.measure("deadly", 1, 2):
        assert record.measurement.status is Status.UNCHECKED
        assert "lost 3 times" in record.measurement.error
    assert calls(referring.tasks["deadly"]) == 3
    (record,) = referring.measure("plain", 7)
    assert record.measurement.status is Status.OK


def test_who_alone_cannot_make_one_that_others_made_costs_a_trial_and_not_the_task(
    referring: Referring,
) -> None:
    """A machine with less memory joined later, say, and was free three times in a row."""
    from actors.ray_actors import Compiled
    from cluster.ray_workers.ray_measurer import RayMeasurer, RunJob
    from cluster.ray_workers.ray_pool import Done

    (made,) = referring.measure("plain", 20)
    assert isinstance(referring.measurer, RayMeasurer)
    job = RunJob(made.trial, None, None, Compiled(0.1, "hash"))
    given_up = Done(job, 3, lost="no memory", unprepared=True)
    record = referring.measurer._take_run(given_up)
    assert record is not None
    assert (record.measurement.status, record.measurement.error) == (Status.LOST, "no memory")


def test_leases_are_no_shorter_than_what_workers_allow_themselves(tmp_path: Path) -> None:
    from actors.runner import longest_learn_s, longest_run_s
    from cluster.ray_workers.ray_measurer import Leases

    leases = Leases.of(EFFORT)
    assert leases.run_s > longest_run_s(EFFORT.run_deadline_s) > 2 * EFFORT.run_deadline_s
    assert leases.learn_s > longest_learn_s(EFFORT.reference_deadline_s)
    assert leases.learn_s > 2 * EFFORT.reference_deadline_s
