"""A compiled program that is lost, or not the one that was built, is built once more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.ray_workers.test_ray_contracts import start
from tests.contracts.measurer import Measuring
from tests.contracts.programs import BROKEN, gemm_task, sampled
from tuner.effort import EFFORTS
from tuner.record import Record, Status, Trial

pytestmark = [
    pytest.mark.tvm,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.usefixtures("embedded_ray"),
]


class Tampered:
    """A builder whose artifacts pass through somebody's hands: all else is the actor itself."""

    def __init__(self, actor: Any, hands: Callable[[Any], Any]) -> None:
        self.actor, self._hands = actor, hands

    def __getattr__(self, name: str) -> Any:
        return self if name == "build" else getattr(self.actor, name)

    def remote(self, *arguments: Any) -> tuple[Any, Any]:
        """Build; the answer is the actor's own, the artifact what became of it."""
        outcome, artifact = self.actor.build.remote(*arguments)
        return outcome, self._hands(artifact)


@contextmanager
def measuring(folder: Path, hands: Callable[[Any], Any]) -> Iterator[Measuring]:
    import ray

    from cluster.ray_workers.ray_measurer import RayMeasurer, Starters
    from cluster.scaling.scaling_policy import WorkerCounts

    task = gemm_task()
    build = start("builder", folder, task)

    def stop(actor: Any) -> None:
        ray.kill(actor.actor if isinstance(actor, Tampered) else actor)

    starters = Starters(
        lambda name: Tampered(build(name), hands), start("runner", folder, task), stop
    )
    measurer = RayMeasurer(starters, effort=EFFORTS["quick"])
    measurer.resize(WorkerCounts(runners=1, builders=1, space_workers=0))
    try:
        yield Measuring(measurer, task.key, sampled(task, 1), BROKEN)
    finally:
        measurer.close()


def measured(measuring: Measuring, *, rung: int = 0) -> Record:
    measuring.wait_until_free()
    measuring.measurer.submit([Trial(measuring.task_key, measuring.good[0], rung=rung)])
    (record,) = measuring.collect_all(1)
    return record


def wait_until_lost(reference: Any) -> None:
    """Until Ray says that nobody has an object any more."""
    import ray

    until_s = time.monotonic() + 60.0
    while True:
        try:
            ray.get(reference, timeout=5.0)
        except ray.exceptions.ObjectLostError:
            return
        assert time.monotonic() < until_s, "it is still there"
        time.sleep(0.1)


def test_an_artifact_that_was_changed_on_its_way_is_never_loaded(tmp_path: Path) -> None:
    import ray

    wrong = [True, False]
    with measuring(
        tmp_path, lambda artifact: ray.put(b"anything") if wrong.pop(0) else artifact
    ) as lab:
        record = measured(lab)
    assert (record.measurement.status, record.attempt) == (Status.OK, 2)
    assert not wrong


def test_one_that_does_not_come_is_built_again_and_its_runner_stays(tmp_path: Path) -> None:
    """As one that is asked of a machine that is gone, which Ray does not know yet."""
    import ray

    never = ray.remote(num_cpus=0)(lambda: time.sleep(3600.0)).remote()
    coming = [never]
    with measuring(tmp_path, lambda artifact: coming.pop() if coming else artifact) as lab:
        record = measured(lab)
        assert record.provenance.worker == "runner-1"
        assert lab.measurer.counts["runner"].lost == 0  # type: ignore[attr-defined]
    ray.cancel(never, force=True)
    assert (record.measurement.status, record.attempt) == (Status.OK, 2)


@pytest.mark.long
def test_one_that_is_changed_each_time_is_lost_in_the_end(tmp_path: Path) -> None:
    import ray

    with measuring(tmp_path, lambda artifact: ray.put(b"anything")) as lab:
        record = measured(lab)
    assert (record.measurement.status, record.attempt) == (Status.LOST, 3)
    assert record.measurement.error == "its artifact was not what was built"


def test_one_that_the_object_store_has_lost_is_built_again(tmp_path: Path) -> None:
    """It is lost with the process that owns it."""
    import ray

    class Owner:
        def own(self, artifact: bytes) -> list[Any]:
            return [ray.put(artifact)]

    owner = ray.remote(num_cpus=0)(Owner).remote()
    built: list[Any] = []

    def owned(artifact: Any) -> Any:
        built.append(artifact if built else ray.get(owner.own.remote(artifact))[0])
        return built[-1]

    with measuring(tmp_path, owned) as lab:
        assert measured(lab, rung=1).measurement.status is Status.OK
        ray.kill(owner)
        wait_until_lost(built[0])
        record = measured(lab, rung=2)
    assert (record.measurement.status, record.attempt) == (Status.OK, 2)
    assert len(built) == 2
