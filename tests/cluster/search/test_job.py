"""What a search on a shared cluster is asked to do, with someone else's cluster behind it."""

from __future__ import annotations

import contextlib
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.app.driver.preparation import Preparation
from cluster.search.job import SearchJob, SearchState, load, save
from tuner.request.model_spec import ModelSpec
from tuner.request.options import DEVICE_WAIT_S, TuneOptions
from tuner.run_location import RunLocation
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot

pytestmark = [pytest.mark.ray, pytest.mark.tvm]

TARGET = '{"kind":"llvm","num-cores":2}'
ASKED = TuneOptions(ModelSpec("m.onnx"), "llvm", address="127.0.0.1:6379", run=Path("run"))
COMES_S = 420.0
DONE = SearchState(Snapshot(phase=Phase.DONE), "trials")


Ordered = Callable[[TuneOptions], SearchJob]


@pytest.fixture
def ordered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ordered:
    """Tunes where a machine comes after seven minutes, and gives the order."""
    from cluster.app import tune
    from cluster.app.driver import devices, multi_device
    from cluster.ray_workers import ray_cluster
    from cluster.search import client

    monkeypatch.chdir(tmp_path)
    Path("m.onnx").touch()  # it is looked for before the wait, and read after it

    jobs: list[SearchJob] = []

    @contextlib.contextmanager
    def cluster(address: str) -> Iterator[None]:
        yield

    def arrived(target: str, wait: Any) -> tuple[devices.Device, ...]:
        return (devices.Device(TARGET, "cpu x"),)

    class Here(Preparation):
        def __init__(
            self, options: TuneOptions, run: RunLocation, *, target: str, **known: Any
        ) -> None:
            self._child = None
            self._job = SearchJob(replace(options, target=target), run, run.folder, (), {}, **known)

    monkeypatch.setattr(ray_cluster, "ray_cluster", cluster)
    monkeypatch.setattr(client, "search_at_work", lambda run: None)
    monkeypatch.setattr(client, "start_search", jobs.append)
    monkeypatch.setattr(multi_device, "watch_all", lambda found, *_: dict.fromkeys(found, DONE))
    monkeypatch.setattr(devices, "devices_on_cluster", arrived)
    monkeypatch.setattr(tune, "Preparation", Here)

    def run(options: TuneOptions) -> SearchJob:
        tune.tune(options, stop=threading.Event())
        return jobs.pop()

    return run


def test_the_wait_for_a_machine_is_not_part_of_the_time_budget(
    ordered: Ordered, tmp_path: Path
) -> None:
    job = ordered(replace(ASKED, time_budget_s=300.0))
    assert job.deadline_s(now_s=COMES_S) == COMES_S + 300.0
    saved = save(replace(job, started_s=COMES_S), tmp_path / "a.job")
    assert load(saved).deadline_s(now_s=COMES_S + 50.0) == COMES_S + 300.0
    assert job.options.finalists_s == pytest.approx(30.0)


def test_many_trials_have_their_time(ordered: Ordered) -> None:
    job = ordered(replace(ASKED, trials=20_000))
    assert job.trials == 20_000
    assert job.deadline_s(0.0) > 100_000
    assert job.options.finalists_s < 1000
    assert job.facts["time_budget_s"] == job.deadline_s(0.0)


def test_room_for_workers_is_waited_for_also_where_the_user_said_nothing(ordered: Ordered) -> None:
    assert ordered(ASKED).device_wait_s == DEVICE_WAIT_S
    assert ordered(replace(ASKED, device_wait_s=30.0)).device_wait_s == 30.0


def test_a_run_that_nobody_named_is_called_after_its_model(ordered: Ordered) -> None:
    job = ordered(replace(ASKED, run=None))
    assert job.run.parent == Path("runs")
    assert job.run.name.startswith("m-2")


def test_python_says_itself_where_the_record_of_the_search_goes(
    ordered: Ordered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert not ordered(ASKED).tracking_uri


def test_an_order_is_kept_for_its_search_and_for_nobody_else(
    ordered: Ordered, tmp_path: Path
) -> None:
    """Whoever starts the search again has nothing but the file; a password may be in it."""
    job = replace(ordered(ASKED), run=tmp_path, tracking_uri="http://me:secret@127.0.0.1:5000")
    for _ in range(2):
        path = save(job)
        assert load(path) == job
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == [path.name]
