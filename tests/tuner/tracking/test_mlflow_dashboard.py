"""What a real MLflow has of a large network's run, and in which order its pages show it."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.tracking.tracked_runs import many_tasks
from tuner.candidate import Candidate, CandidateKind
from tuner.cost_models.base import FittedModel
from tuner.record import Measurement, Provenance, Record, Status, Trial
from tuner.storage.base import begin_session
from tuner.storage.facts import Defaults, Tasks
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task
from tuner.tracking.child_runs import MOST_CHILDREN
from tuner.tracking.drain import RunDrain
from tuner.tracking.entries import Metrics, TrackingPaths, decode
from tuner.tracking.mlflow_sink import MlflowSink, Target, system_monitors
from tuner.tracking.observer import RunStatus, TrackingObserver
from tuner.tracking.progress import load_progress
from tuner.tracking.system_metrics import SystemSamples
from tuner.tracking.tracker import open_command
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot, fold
from tuner.view.run_view import SpaceView

NETWORK = many_tasks(300)
TAGS = {"model": "net.onnx", "target": "llvm-znver4", "strategy": "evolutionary"}
TAGS |= {"git_revision": "abc", "effort": "normal"}
WHERE = Provenance("runner-1", "znver4, 8 threads", "tvm 1, llvm 2")


pytestmark = pytest.mark.usefixtures("quiet_mlflow")

NETWORK_RUNS = "net"
"""The experiment of the network's run."""


def record(task: Task, number: int) -> Record:
    candidate = Candidate(CandidateKind.TRACE, f"[{number}]", "space")
    measured = Measurement(Status.OK, (task.flops * 1e-10 / (number + 1),))
    return Record(Trial(task.key, candidate), measured, WHERE, time_s=1001.0 + number)


def tune(run_dir: Path, tasks: list[Task]) -> None:
    """What a session leaves that measured each task's default and a candidate twice as fast."""
    records = [record(task, number) for number in range(2) for task in tasks]
    defaults = {task.key: records[0].trial.candidate.key for task in tasks}
    now = [1000.0]
    paths = TrackingPaths(run_dir)
    first, *others = (p.view() for p in fold(tasks, defaults, records).values())
    first = replace(first, statuses={**first.statuses, Status.BUILD_FAILED: 3})
    snapshot = Snapshot(
        phase=Phase.DONE,
        elapsed_s=9.0,
        trials_per_s=2.5,
        tasks=(first, *others),
        spaces=(SpaceView("space", None, 1, 1, 0, (), None),),
        utilisation={"runner": {"busy": 9.0}},
        estimate_accuracy=0.7,
    )
    with closing(SqliteStore(paths.store)) as store:
        store.put(Tasks(tasks), Defaults(defaults))
        begin_session(store, 1000.0)
        observer = TrackingObserver(
            paths, store, name="net", params={"seed": 1}, tags=TAGS, clock=lambda: now[0]
        )
        observer.on_start(tasks)
        store.append_many([(each, None) for each in records])
        now[0] = 1010.0
        observer.on_model(FittedModel(1, b"model", 8, 0.8, 0.1))
        observer.on_end(snapshot)
        observer.close(RunStatus.FINISHED)


def push(run_dir: Path, target: Target) -> MlflowSink:
    sink = MlflowSink(run_dir, target)
    paths = TrackingPaths(run_dir)
    drain = RunDrain(paths, sink, load_progress(paths, target.identity), clock=time.monotonic)
    drain.wind_up()
    while drain.step():
        pass
    assert drain.drained(), drain.progress.error
    return sink


def sample(run_dir: Path) -> None:
    """As the tracker does while its session lives."""
    clock = [0.0]
    path = TrackingPaths(run_dir).system
    samples = SystemSamples(path, system_monitors, clock=lambda: clock[0], wall=lambda: 1005.0)
    for clock[0] in (0.0, 5.0, 10.0, 20.0):
        samples.tick()
    clock[0] = 23.0
    samples.tick(last=True)


@pytest.fixture(scope="module")
def run_dir(quiet_mlflow: None, database: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of the network, in MLflow."""
    run_dir = tmp_path_factory.mktemp("net")
    tune(run_dir, NETWORK)
    sample(run_dir)
    (run_dir / "report.html").write_text("<p>first</p>")
    push(run_dir, Target(database, NETWORK_RUNS))
    return run_dir


@pytest.fixture(scope="module")
def client(quiet_mlflow: None, database: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=database)


def runs_of(client: Any, experiment: str = NETWORK_RUNS) -> list[Any]:
    found = client.get_experiment_by_name(experiment)
    return list(client.search_runs([found.experiment_id], max_results=1000))


def of_level(client: Any, level: str, experiment: str = NETWORK_RUNS) -> list[Any]:
    return [r for r in runs_of(client, experiment) if r.data.tags.get("tuner.level") == level]


@pytest.fixture(scope="module")
def model(client: Any, run_dir: Path) -> Any:
    (model,) = of_level(client, "model")
    return model


def test_of_300_tasks_20_have_a_run_below_the_models(client: Any, model: Any) -> None:
    children = of_level(client, "task")
    assert len(runs_of(client)) == 1 + len(children) == 1 + MOST_CHILDREN
    assert {c.data.tags["mlflow.parentRunId"] for c in children} == {model.info.run_id}
    heaviest = sorted(NETWORK, key=lambda task: -task.weight * task.flops)[:MOST_CHILDREN]
    assert {c.data.tags["tuner.task"] for c in children} == {task.key for task in heaviest}
    assert all(c.data.metrics["task/gain"] == pytest.approx(2.0) for c in children)
    assert {c.info.start_time for c in children} == {model.info.start_time}


def test_one_table_has_all_300_the_heaviest_first(client: Any, model: Any, tmp_path: Path) -> None:
    got = client.download_artifacts(model.info.run_id, "tasks.json", str(tmp_path))
    table = json.loads(Path(got).read_text())
    names = table["columns"]
    found = [dict(zip(names, row, strict=True)) for row in table["data"]]
    assert names[:2] == ["task", "share"]
    assert {row["key"] for row in found} == {task.key for task in NETWORK}
    assert len(found) == 300
    shares = [row["share"] for row in found]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1.0, abs=1e-3)
    assert {row["gain"] for row in found} == {2.0}


def test_its_pages_show_it_as_a_table(model: Any) -> None:
    shown = json.loads(model.data.tags["mlflow.loggedArtifacts"])
    assert sorted(each["path"] for each in shown) == ["spaces.json", "tasks.json"]
    assert {each["type"] for each in shown} == {"table"}


def test_a_run_says_what_it_was_and_where(model: Any) -> None:
    tags = model.data.tags
    assert {name: tags[name] for name in TAGS} == TAGS
    assert (tags["device"], tags["toolchain"]) == (WHERE.device, WHERE.toolchain)


def test_the_models_latency_and_gain_over_trials_and_time(client: Any, model: Any) -> None:
    before_ms = sum(task.weight * task.flops for task in NETWORK) * 1e-10 * 1e3
    curve = client.get_metric_history(model.info.run_id, "model/latency_ms")
    assert min(point.step for point in curve) == 300  # the first at which every task has a time
    assert curve[0].value == pytest.approx(before_ms, rel=1e-3)
    assert model.data.metrics["model/latency_ms"] == pytest.approx(before_ms / 2, rel=1e-3)
    assert model.data.metrics["model/untuned_ms"] == pytest.approx(before_ms, rel=1e-3)
    assert model.data.metrics["model/gain"] == pytest.approx(2.0)
    by_time = client.get_metric_history(model.info.run_id, "model/latency_ms_by_time")
    assert {point.step for point in by_time} == {1, 2}


def test_what_its_pages_show_first_is_the_model_and_last_the_failures(model: Any) -> None:
    """They sort metrics by name, those that have a group before those that have none."""
    names = sorted(name for name in model.data.metrics if not name.startswith("system/"))
    groups = list(dict.fromkeys(name.rpartition("/")[0] for name in names))
    assert names[:2] == ["model/gain", "model/latency_ms"]
    assert groups[0] == "model"
    assert groups[-1] == "trials_failed"
    assert "" not in groups
    assert next(iter(model.data.metrics)) == "model/gain"  # lists are in the order they came


def test_the_machines_use_is_among_the_system_metrics(client: Any, model: Any) -> None:
    cpu = client.get_metric_history(model.info.run_id, "system/cpu_utilization_percentage")
    assert [point.step for point in cpu] == [0, 1, 2]  # every ten seconds, and at the end
    assert model.data.metrics["system/system_memory_usage_megabytes"] > 0


def test_samples_go_on_with_the_next_session(run_dir: Path, tmp_path: Path) -> None:
    for _ in range(2):
        sample(tmp_path)
    entries = list(map(decode, TrackingPaths(tmp_path).system.read_text().splitlines()))
    assert [e.step for e in entries if isinstance(e, Metrics)] == [0, 1, 2, 3, 4, 5]


def test_a_sample_that_a_crash_cut_off_spoils_no_other(client: Any, tmp_path: Path) -> None:
    tune(tmp_path, NETWORK[:1])
    system = TrackingPaths(tmp_path).system
    sample(tmp_path)
    os.truncate(system, system.stat().st_size - 5)
    sample(tmp_path)
    push(tmp_path, Target(client.tracking_uri, "cut"))
    (model,) = of_level(client, "model", "cut")
    cpu = client.get_metric_history(model.info.run_id, "system/cpu_utilization_percentage")
    assert [point.step for point in cpu] == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("value", ["false", "nonsense"])
def test_system_metrics_can_be_turned_off_and_never_stop_a_tracker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", value)
    sample(tmp_path)
    assert not TrackingPaths(tmp_path).system.exists()


def test_the_experiment_is_one_of_training_and_has_a_view_of_its_models(
    client: Any, model: Any
) -> None:
    tags = client.get_experiment(model.info.experiment_id).tags
    assert tags["mlflow.experimentKind"] == "custom_model_development"
    view = json.loads(tags["mlflow.sharedViewState.models"])
    state = json.loads(view["state"])
    found = client.search_runs([model.info.experiment_id], state["searchFilter"])
    assert [run.info.run_id for run in found] == [model.info.run_id]
    known = {"metrics": model.data.metrics, "tags": model.data.tags}
    columns = [column.replace("`", "").split(".", 1) for column in state["selectedColumns"]]
    assert all(name in known[kind] for kind, name in columns if kind in known)


def test_an_old_experiment_gets_what_it_lacks_and_keeps_what_its_owner_said(
    client: Any, run_dir: Path, tmp_path: Path
) -> None:
    client.create_experiment("old", tags={"mlflow.note.content": "mine"})
    tune(tmp_path, NETWORK[:2])
    push(tmp_path, Target(client.tracking_uri, "old"))
    tags = client.get_experiment_by_name("old").tags
    assert tags["mlflow.note.content"] == "mine"
    assert tags["mlflow.experimentKind"] == "custom_model_development"


def test_a_server_is_named_with_the_page_of_the_experiment(run_dir: Path, model: Any) -> None:
    assert open_command(run_dir, "http://host:5000") == (
        f"http://host:5000/#/experiments/{model.info.experiment_id}/runs"
        "?workflowType=machine_learning&viewStateShareKey=models&compareRunsMode=CHART"
    )


def test_a_report_is_an_artifact_and_so_is_the_one_that_replaces_it(
    client: Any, run_dir: Path, model: Any, tmp_path: Path
) -> None:
    def there(name: str = "report.html") -> str:
        got = client.download_artifacts(model.info.run_id, name, str(tmp_path))
        return Path(got).read_text()

    assert there() == "<p>first</p>"
    (run_dir / "plots").mkdir()
    (run_dir / "plots" / "over-time.png").write_text("an image")
    (run_dir / "report.html").write_text("<p>second</p>")
    push(run_dir, Target(client.tracking_uri, NETWORK_RUNS))
    assert there() == "<p>second</p>"
    assert there("plots/over-time.png") == "an image"


def test_a_file_that_a_session_keeps_is_one_too(client: Any, run_dir: Path, tmp_path: Path) -> None:
    paths = TrackingPaths(tmp_path)
    with closing(SqliteStore(paths.store)) as store:
        store.put(Tasks(NETWORK[:1]))
        observer = TrackingObserver(paths, store, name="kept", params={})
        observer.on_start(NETWORK[:1])
        observer.keep("notes.txt", b"kept")
        observer.close(RunStatus.FINISHED)
    push(tmp_path, Target(client.tracking_uri, "kept"))
    (model,) = of_level(client, "model", "kept")
    assert [a.path for a in client.list_artifacts(model.info.run_id)] == ["notes.txt"]
