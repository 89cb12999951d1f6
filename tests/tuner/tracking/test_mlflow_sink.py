"""Against a real MLflow: its SQLite store, and its server for the slow ones."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import socketserver
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.tracking.fake_sink import open_store, say
from tuner.candidate import Candidate, CandidateKind
from tuner.errors import TunerError
from tuner.files.atomic import write_bytes
from tuner.record import Measurement, Record, Status, Trial, record_line
from tuner.storage.facts import Tasks
from tuner.storage.restore import Restored, restore
from tuner.storage.sqlite_store import MemoryStore
from tuner.task import Task
from tuner.tracking.entries import End, Metrics, Start, TaskEntry, TrackingPaths
from tuner.tracking.mlflow_records import fetch_records
from tuner.tracking.mlflow_sink import MlflowSink, Target
from tuner.tracking.mlflow_uris import quiet_environment, tracking_uri
from tuner.tracking.sink import Gone, Refused, Unavailable
from tuner.tracking.tracker import TrackerProcess, drain

pytestmark = pytest.mark.usefixtures("quiet_mlflow")


def test_a_uri_that_mlflow_does_not_know_drops_nothing(tmp_path: Path) -> None:
    # MLflow calls it an invalid parameter, as it does for an entry that it will never take.
    sink = MlflowSink(tmp_path, Target("frob://x", "tuner"))
    with pytest.raises(Unavailable, match="frob"):
        sink.push(BEGIN)


BEGIN: list[Any] = [
    Start("u1", "demo", {"seed": "0", "trials": "10"}, {"host": "here"}, 1000.0),
    TaskEntry("aa", "conv", {"weight": "3"}),
    TaskEntry("bb", "dense", {"weight": "1"}),
]


def points(count: int, first: int = 1, task: str | None = "aa") -> list[Metrics]:
    return [
        Metrics(task, i, {"task/latency_us": 1e3 / i, "task/best_us": 1e3 / i}, 1000.0 + i)
        for i in range(first, first + count)
    ]


@pytest.fixture
def target(database: str, request: pytest.FixtureRequest) -> Target:
    return Target(database, request.node.name)


def client(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


def runs(target: Target) -> dict[str, Any]:
    """All runs of the experiment by task key, the run itself under ""; no key twice."""
    there = client(target.uri)
    experiment = there.get_experiment_by_name(target.experiment)
    found = list(there.search_runs([experiment.experiment_id]))
    by_key = {run.data.tags.get("tuner.task", ""): run for run in found}
    assert len(by_key) == len(found)
    return by_key


def history(target: Target, task: str, key: str) -> list[tuple[int, float, int]]:
    run_id = runs(target)[task].info.run_id
    found = client(target.uri).get_metric_history(run_id, key)
    return sorted((m.step, m.value, m.timestamp) for m in found)


class TestRuns:
    def test_a_run_and_a_child_for_each_task(self, tmp_path: Path, target: Target) -> None:
        sink = MlflowSink(tmp_path, target)
        sink.push([*BEGIN, *points(3), Metrics(None, 3, {"gain": 2.0}, 1003.0)])
        found = runs(target)
        assert set(found) == {"", "aa", "bb"}
        run, conv = found[""], found["aa"]
        assert (run.info.run_name, run.info.status, run.info.start_time) == (
            "demo",
            "RUNNING",
            1_000_000,
        )
        assert run.data.params == {"seed": "0", "trials": "10"}
        assert run.data.tags["host"] == "here"
        assert run.data.metrics == {"gain": 2.0}
        assert conv.data.tags["mlflow.parentRunId"] == run.info.run_id
        assert conv.data.params == {"weight": "3"}
        assert history(target, "aa", "task/best_us") == [
            (i, 1e3 / i, 1_000_000 + 1000 * i) for i in (1, 2, 3)
        ]
        sink.push([End("KILLED", 1010.0)])
        assert {(r.info.status, r.info.end_time) for r in runs(target).values()} == {
            ("KILLED", 1_010_000)
        }

    def test_pushing_again_changes_nothing(self, tmp_path: Path, target: Target) -> None:
        said = [*BEGIN, *points(50), End("FINISHED", 1100.0)]
        MlflowSink(tmp_path, target).push(said)
        once = history(target, "aa", "task/latency_us")
        MlflowSink(tmp_path, target).push(said)
        assert len(once) == 50
        assert history(target, "aa", "task/latency_us") == once

    def test_ids_lost_in_a_crash_are_found_again(self, tmp_path: Path, target: Target) -> None:
        MlflowSink(tmp_path, target).push(BEGIN)
        before = {key: run.info.run_id for key, run in runs(target).items()}
        TrackingPaths(tmp_path).ids.unlink()
        MlflowSink(tmp_path, target).push([*BEGIN, *points(1)])
        assert {key: run.info.run_id for key, run in runs(target).items()} == before

    def test_a_resumed_session_goes_on_in_the_same_run(
        self, tmp_path: Path, target: Target
    ) -> None:
        MlflowSink(tmp_path, target).push([*BEGIN, End("KILLED", 1010.0)])
        more = Start("u1", "demo", {"seed": "0", "trials": "20"}, {}, 2000.0)
        MlflowSink(tmp_path, target).push([more, *BEGIN[1:]])
        run = runs(target)[""]
        assert run.info.status == "RUNNING"
        assert run.data.params["trials"] == "10"  # MLflow never changes a param
        assert run.data.tags["resumed.trials"] == "20"

    def test_a_session_that_vanished_is_killed(self, tmp_path: Path, target: Target) -> None:
        sink = MlflowSink(tmp_path, target)
        sink.push(BEGIN)
        sink.abandon(1020.0)
        assert runs(target)[""].info.status == "KILLED"

    def test_an_ended_run_stays_as_it_ended(self, tmp_path: Path, target: Target) -> None:
        sink = MlflowSink(tmp_path, target)
        sink.push([*BEGIN, End("FINISHED", 1010.0)])
        sink.abandon(1020.0)
        assert runs(target)[""].info.status == "FINISHED"

    def test_files_become_artifacts(self, tmp_path: Path, target: Target) -> None:
        sink = MlflowSink(tmp_path, target)
        sink.push(BEGIN)
        for name in ("records/records-000001.jsonl", "summary.json"):
            write_bytes(tmp_path / name, b"{}\n")
            sink.upload(name, tmp_path / name)
        run_id, there = runs(target)[""].info.run_id, client(target.uri)
        assert [a.path for a in there.list_artifacts(run_id, "records")] == [
            "records/records-000001.jsonl"
        ]
        assert "summary.json" in [a.path for a in there.list_artifacts(run_id)]


def kept_record(number: int) -> Record:
    candidate = Candidate(CandidateKind.TRACE, f"[{number}]", "space")
    return Record(Trial("aa", candidate), Measurement(Status.OK, (1.0 + number,)))


class TestRecords:
    def test_those_that_a_lost_run_left_come_back(self, tmp_path: Path, target: Target) -> None:
        sink = MlflowSink(tmp_path, target)
        sink.push(BEGIN)
        records = [kept_record(number) for number in range(5)]
        for number, part in enumerate((records[:3], records[3:])):
            name = f"records/records-{number:06}.jsonl"
            lines = "".join(record_line(r) + "\n" for r in part)
            write_bytes(tmp_path / name, lines.encode())
            sink.upload(name, tmp_path / name)
        store = MemoryStore()
        store.put(Tasks([Task("aa", "conv", "{}", "{}")]))
        (tmp_path / "here").mkdir()
        run_id = runs(target)[""].info.run_id
        fetched = fetch_records(target.uri, run_id, tmp_path / "here")
        assert restore([fetched], store) == Restored(5, 0, 0)
        assert [r.trial.key for r in store.scan()] == [r.trial.key for r in records]

    def test_a_task_of_a_run_has_none(self, tmp_path: Path, target: Target) -> None:
        MlflowSink(tmp_path, target).push(BEGIN)
        run_id = runs(target)["aa"].info.run_id
        with pytest.raises(TunerError, match="no records/ among its artifacts"):
            fetch_records(target.uri, run_id, tmp_path)

    def test_a_run_that_is_not_there_is_told_in_a_line(
        self, tmp_path: Path, target: Target
    ) -> None:
        MlflowSink(tmp_path, target).push(BEGIN)
        with pytest.raises(TunerError, match="does not give the run 0123") as failed:
            fetch_records(target.uri, "0123", tmp_path)
        assert len(str(failed.value).splitlines()) == 1

    def test_looking_for_a_run_makes_no_database(self, tmp_path: Path) -> None:
        with pytest.raises(TunerError, match=r"no MLflow database.*MLFLOW_TRACKING_URI"):
            fetch_records(tracking_uri(tmp_path, ""), "0123", tmp_path)
        assert not list(tmp_path.iterdir())


class TestErrors:
    def test_a_metric_of_an_unknown_task_is_refused(self, tmp_path: Path, target: Target) -> None:
        sink = MlflowSink(tmp_path, target)
        sink.push(BEGIN)
        with pytest.raises(Refused, match="zz"):
            sink.push(points(1, task="zz"))

    def test_a_name_that_mlflow_does_not_take_is_refused(
        self, tmp_path: Path, target: Target
    ) -> None:
        sink = MlflowSink(tmp_path, target)
        sink.push(BEGIN)
        with pytest.raises(Refused):
            sink.push([Metrics("aa", 1, {"?": 1.0}, 1001.0)])

    def test_a_file_that_went_away_is_looked_for_again(
        self, tmp_path: Path, target: Target
    ) -> None:
        sink = MlflowSink(tmp_path, target)
        sink.push(BEGIN)
        with pytest.raises(Unavailable):
            sink.upload("nothing.jsonl", tmp_path / "nothing.jsonl")

    def test_runs_somebody_deleted_are_made_anew(self, tmp_path: Path, target: Target) -> None:
        sink = MlflowSink(tmp_path, target)
        sink.push(BEGIN)
        for run in runs(target).values():
            client(target.uri).delete_run(run.info.run_id)
        with pytest.raises(Gone):
            sink.push(points(2))
        sink.forget()
        sink.push([*BEGIN, *points(2)])
        assert len(history(target, "aa", "task/best_us")) == 2

    def test_nobody_there_is_for_later(self, tmp_path: Path, database: str) -> None:
        sink = MlflowSink(tmp_path, Target(f"http://127.0.0.1:{free_port()}"))
        with pytest.raises(Unavailable):
            sink.push(BEGIN)


def stored_steps(run_dir: Path, key: str) -> list[int]:
    """Steps of a metric of task `aa`, as the database itself holds them."""
    database = run_dir / "mlflow.db"
    if not database.exists():
        return []
    query = "SELECT step FROM metrics WHERE key = ? ORDER BY step"
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            return [step for (step,) in connection.execute(query, (key,))]
    except sqlite3.OperationalError:
        return []  # being created


def eventually(condition: Callable[[], bool]) -> None:
    """Wait for it; the test's own time limit ends this."""
    while not condition():
        time.sleep(0.05)


class TestProcess:
    @pytest.mark.slow
    def test_a_run_ends_in_the_database_of_its_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.5")
        with closing(open_store(tmp_path)):  # its session lives
            say(tmp_path, BEGIN[:1])
            tracker = TrackerProcess.start(tmp_path)
            eventually(lambda: stored_steps(tmp_path, "system/cpu_utilization_percentage") != [])
        say(tmp_path, [*points(300), End("FINISHED", 1400.0)])
        assert tracker.pid is not None
        os.kill(tracker.pid, signal.SIGSTOP)  # as while a kernel is timed
        outcome = tracker.finish(120.0)
        samples = stored_steps(tmp_path, "system/cpu_utilization_percentage")
        assert samples == list(range(len(samples)))
        assert (outcome.pushed, outcome.pending, outcome.warning) == (304 + len(samples), 0, "")
        assert stored_steps(tmp_path, "task/best_us") == list(range(1, 301))
        assert {p.name for p in tmp_path.iterdir()} >= {"mlflow.db", "tracking"}

    @pytest.mark.long
    def test_killed_again_and_again_each_metric_is_there_once(
        self, tmp_path: Path, empty_database: Path
    ) -> None:
        shutil.copy(empty_database, tmp_path)
        say(tmp_path, BEGIN[:1])
        with closing(open_store(tmp_path)) as store:
            store.append_many([(kept_record(n), None) for n in range(800)])
            for goal in (100, 400):
                tracker = TrackerProcess.start(tmp_path)
                assert tracker.pid is not None
                pid = tracker.pid
                eventually(lambda goal=goal: len(stored_steps(tmp_path, "task/best_us")) >= goal)
                os.kill(pid, signal.SIGKILL)
                eventually(lambda tracker=tracker: tracker.pid is None)
            store.append_many([(kept_record(n), None) for n in range(800, 900)])
        say(tmp_path, [End("FINISHED", 9000.0)])
        outcome = drain(tmp_path, 200.0)
        assert (outcome.pending, outcome.warning) == (0, "")
        for key in ("task/best_us", "task/latency_us"):
            assert stored_steps(tmp_path, key) == list(range(1, 901))
        kept = sorted((tmp_path / "mlartifacts").rglob("records-*.jsonl"))
        assert sum(len(file.read_text().splitlines()) for file in kept) == 900


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def server(folder: Path, port: int) -> Iterator[None]:
    """A real `mlflow server` on loopback."""
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
    options = ["--port", str(port), "--workers", "1"]
    store = ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    places = ["--artifacts-destination", str(folder / "artifacts")]
    environment = {**os.environ, **quiet_environment()}
    environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, *options, *store, *places],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        eventually(lambda: healthy(port) or process.poll() is not None)
        assert process.poll() is None, (folder / "server.log").read_text()
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


class Passage(socketserver.BaseRequestHandler):
    """A connection of a door, to a server behind it."""

    server: Door

    def handle(self) -> None:
        with socket.create_connection(("127.0.0.1", self.server.behind)) as inside:
            ends = {self.request: inside, inside: self.request}
            self.server.ends += ends
            with suppress(OSError):
                while True:
                    for end in select.select(ends, [], [])[0]:
                        if not (said := end.recv(1 << 16)):
                            return
                        ends[end].sendall(said)


class Door(socketserver.ThreadingTCPServer):
    """A port of loopback that leads to the server on another."""

    allow_reuse_address = True

    def __init__(self, port: int, behind: int) -> None:
        self.behind = behind
        self.ends: list[socket.socket] = []
        super().__init__(("127.0.0.1", port), Passage)


@contextmanager
def opened(port: int, behind: int) -> Iterator[None]:
    """Let clients of a port reach a server. Closed it refuses them, and cuts their requests off."""
    with Door(port, behind) as door:
        serving = threading.Thread(target=door.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield
        finally:
            door.shutdown()
            serving.join()
            for end in door.ends:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
def test_a_server_that_goes_down_and_comes_back_holds_everything(
    tmp_path: Path, empty_database: Path
) -> None:
    """Down for its clients: it would take long to start twice."""
    shutil.copy(empty_database, tmp_path)
    run_dir, port, behind = tmp_path / "run", free_port(), free_port()
    target = Target(f"http://127.0.0.1:{port}")
    say(run_dir, [*BEGIN[:1], *points(100)])
    tracker = TrackerProcess.start(run_dir, target.uri)  # nobody there yet
    with server(tmp_path, behind), closing(open_store(run_dir)):
        with opened(port, behind):
            eventually(
                lambda: (
                    "u1" in TrackingPaths(run_dir).ids.read_text()
                    if TrackingPaths(run_dir).ids.exists()
                    else False
                )
            )
            say(run_dir, points(500, first=101))
        say(run_dir, points(1000, first=601))
        with opened(port, behind):
            write_bytes(TrackingPaths(run_dir).files / "summary.json", b"{}")
            say(run_dir, [End("FINISHED", 9000.0)])
            outcome = tracker.finish(120.0)
            assert (outcome.pending, outcome.warning) == (0, "")
            for key in ("task/best_us", "task/latency_us"):
                assert [step for step, _, _ in history(target, "aa", key)] == list(range(1, 1601))
            run = runs(target)[""]
            assert run.info.status == "FINISHED"
            assert [a.path for a in client(target.uri).list_artifacts(run.info.run_id)] == [
                "summary.json"
            ]


def test_a_server_that_refuses_decorations_gets_the_run_all_the_same(
    tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    MlflowSink(tmp_path / "first", target).push(BEGIN)

    def refuse(*arguments: object) -> None:
        raise MlflowException("no")

    monkeypatch.setattr(MlflowClient, "set_experiment_tag", refuse)
    monkeypatch.setattr("tuner.tracking.mlflow_sink.experiment_tags", lambda now_s: {"new": "1"})
    sink = MlflowSink(tmp_path / "second", target)
    sink.push([replace(BEGIN[0], uuid="another"), *BEGIN[1:]])
