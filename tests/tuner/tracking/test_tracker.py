from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from tests.tuner.tracking.fake_sink import entries_of, open_store
from tuner.candidate import Candidate, CandidateKind
from tuner.cost_models.base import FittedModel, ModelKind
from tuner.dynamic.dispatch_tree import Leaf, Split
from tuner.dynamic.kernel_set import KernelSet, ShapeTimes
from tuner.record import Measurement, Record, Status, Trial
from tuner.session.observer import Observer
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task
from tuner.tracking.entries import End, Metrics, Start, TrackingPaths, artifacts
from tuner.tracking.mlflow_sink import Target
from tuner.tracking.mlflow_uris import redact
from tuner.tracking.pages import metric_names as names
from tuner.tracking.record_metrics import RecordMetrics
from tuner.tracking.tracker import (
    RunStatus,
    TrackerProcess,
    TrackingObserver,
    TrackingOutcome,
    check_uri,
    drain,
    lasting_uri,
    open_command,
)
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot
from tuner.view.run_view import SpaceView
from tuner.view.task_view import TaskView

CONV = Task("aa", "conv", "{}", "llvm", weight=3, flops=2e6)
DENSE = Task("bb", "dense", "{}", "llvm")


SYMBOLIC = Task("cc", "an open/one", "{}", "llvm", shapes=(((("T", 5),), 1.0), ((("T", 64),), 1.0)))
KERNELS = KernelSet(
    tuple(Candidate(CandidateKind.TRACE, f"[{n}]", "test") for n in range(2)),
    Split("T", 5, Leaf(0), Leaf(1)),
    losses=(1.2, 1.01, 1.0),
    loss=1.01,
    shapes=(
        ShapeTimes((("T", 5),), 1.0, 0, 3e-6, 3e-6, True),
        ShapeTimes((("T", 64),), 1.0, 1, 6e-6, 5e-6, False),
    ),
    error=0.04,
    judged=12,
)


ALL_DAY_S = 86400.0


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def record(number: int) -> Record:
    candidate = Candidate(CandidateKind.TRACE, f"[{number}]", "test")
    return Record(
        Trial(CONV.key, candidate), Measurement(Status.OK, (1e-3,)), time_s=1001.0 + number
    )


def snapshot(ok: int, phase: Phase = Phase.SEARCH, *, build_failed: int = 0) -> Snapshot:
    counts = {Status.OK: ok, Status.BUILD_FAILED: build_failed}
    tasks = (TaskView("aa", "conv", 3, 0.0, counts, 4e-3, 1e-3), TaskView("bb", "dense"))
    return Snapshot(phase=phase, elapsed_s=10.0, trials_per_s=2.5, tasks=tasks)


@contextmanager
def observing(
    run_dir: Path, *tasks: Task, clock: Clock | None = None
) -> Iterator[TrackingObserver]:
    """The observer of a session at work on these tasks."""
    with closing(open_store(run_dir, tasks or (CONV,))) as store:
        clock = clock or Clock()
        paths = TrackingPaths(run_dir)
        yield TrackingObserver(paths, store, name="demo", params={"seed": 0}, clock=clock)


def metric(run_dir: Path, task: str | None, key: str) -> list[tuple[int, float]]:
    return [
        (e.step, e.values[key])
        for e in entries_of(run_dir)
        if isinstance(e, Metrics) and e.task == task and key in e.values
    ]


def files(run_dir: Path) -> list[str]:
    return [name for name, _, _ in artifacts(run_dir)]


class TestObserver:
    def test_a_session_from_start_to_end(self, tmp_path: Path) -> None:
        clock = Clock()
        with observing(tmp_path, CONV, DENSE, clock=clock) as observer:
            as_seam: Observer = observer
            as_seam.on_start([CONV])  # a session of some tasks announces all of them
            as_seam.on_record(record(1), 2e-3)
            as_seam.on_model(FittedModel(1, b"model", 3, 0.75, 0.2))
            as_seam.on_snapshot(snapshot(3, build_failed=1))
            clock.now = 1010.0
            as_seam.on_end(snapshot(3, Phase.DONE, build_failed=1))
            observer.close(RunStatus.FINISHED)
            assert observer.lost == 0

        start, first, *rest = entries_of(tmp_path)
        assert isinstance(start, Start)
        assert start.params == {"seed": "0"}
        assert first == Metrics(None, 0, {"model/gain": 1.0}, 1000.0)
        assert rest[-1] == End("FINISHED", 1010.0)
        assert metric(tmp_path, "aa", "task/untuned_us") == [(0, 4000.0)]
        assert metric(tmp_path, None, "predictions/cost_model_accuracy") == [(3, 0.75)]
        assert metric(tmp_path, None, "trials_failed/build_failed") == [(3, 1.0)]
        assert metric(tmp_path, None, "trials_failed/timeout") == []  # none of these
        assert metric(tmp_path, None, "model/gain") == [(0, 1.0), (3, 4.0)]
        assert files(tmp_path) == ["cost_model/model-1.ubj", "summary.json", "tasks.json"]
        folder = TrackingPaths(tmp_path).files
        assert (folder / "cost_model/model-1.ubj").read_bytes() == b"model"
        assert json.loads((folder / "summary.json").read_text())["gain"] == 4.0

    def test_one_that_never_began_has_no_end(self, tmp_path: Path) -> None:
        with observing(tmp_path) as observer:
            observer.close(RunStatus.FAILED)
        assert entries_of(tmp_path) == []

    def test_its_tasks_are_announced_with_what_they_are(self) -> None:
        conv = RecordMetrics([CONV, DENSE], {}).announce(CONV.key)
        assert conv.params == {"task": "aa", "weight": "3", "flops": "2e+06", "target": "llvm"}

    def test_of_a_record_it_says_nothing_since_the_store_has_it(self, tmp_path: Path) -> None:
        with observing(tmp_path) as observer:
            observer.on_start([CONV])
            before = entries_of(tmp_path)
            observer.on_record(record(1), 1e-3)
            assert entries_of(tmp_path) == before

    def test_the_kernels_of_a_task_are_kept_with_their_tree_and_their_loss(
        self, tmp_path: Path
    ) -> None:
        with observing(tmp_path, SYMBOLIC) as observer:
            observer.on_start([SYMBOLIC])
            observer.on_kernels(SYMBOLIC.key, KERNELS)
            assert observer.sets == {SYMBOLIC.key: KERNELS}
        assert metric(tmp_path, "cc", "task/kernels") == [(0, 2.0)]
        assert metric(tmp_path, "cc", "task/kernels_us") == [(0, pytest.approx(4.5))]
        assert metric(tmp_path, "cc", "task/kernels_loss") == [(0, 1.01)]
        assert metric(tmp_path, "cc", "task/prediction_error") == [(0, 0.04)]
        assert metric(tmp_path, "cc", "task/loss_by_kernels") == [(1, 1.2), (2, 1.01), (3, 1.0)]
        assert metric(tmp_path, "cc", "task/shape_us") == [
            (5, pytest.approx(3)),
            (64, pytest.approx(6)),
        ]
        assert metric(tmp_path, "cc", "task/shape_best_us") == [
            (5, pytest.approx(3)),
            (64, pytest.approx(5)),
        ]
        assert files(tmp_path) == ["kernels/an_open_one.json", "kernels/an_open_one.txt"]
        folder = TrackingPaths(tmp_path).files
        assert (folder / files(tmp_path)[1]).read_text() == (
            "if T <= 5:\n    kernel 0\nelse:\n    kernel 1\n"
        )
        assert json.loads((folder / files(tmp_path)[0]).read_text()) == KERNELS.to_json()

    def test_what_came_of_each_space_is_told_in_numbers_and_as_a_table(
        self, tmp_path: Path
    ) -> None:
        mine = SpaceView("declared:by_hand@1a2b", 1, 1, 1, 0, ("conv",), 0.001)
        ours = SpaceView("kernel:contraction-1.0", None, 9, 9, 9, (), None)
        with observing(tmp_path) as observer:
            observer.on_end(replace(snapshot(10), spaces=(mine, ours)))
        assert metric(tmp_path, None, "space_trials/declared_by_hand") == [(10, 1.0)]
        assert metric(tmp_path, None, "space_won/declared_by_hand") == [(10, 1.0)]
        assert metric(tmp_path, None, "space_trials/kernel_contraction-1.0") == [(10, 9.0)]
        assert json.loads((TrackingPaths(tmp_path).files / "spaces.json").read_text()) == {
            "columns": ["space", "points", "explored", "trials", "failed", "won", "best_ms"],
            "data": [
                ["declared:by_hand@1a2b", 1, 1, 1, 0, "conv", 1.0],
                ["kernel:contraction-1.0", None, 9, 9, 9, "", None],
            ],
        }

    def test_values_that_did_not_change_are_not_said_again(self, tmp_path: Path) -> None:
        clock = Clock()
        with observing(tmp_path, clock=clock) as observer:
            observer.on_start([CONV])
            for trials in (1, 2, 3):
                observer.on_snapshot(snapshot(trials))
                clock.now += 10.0
            observer.close(RunStatus.FINISHED)
        assert metric(tmp_path, None, "trials/per_s") == [(1, 2.5)]
        assert metric(tmp_path, None, "trials/total") == [(1, 1.0), (2, 2.0), (3, 3.0)]

    def test_checkpoints_are_spaced_and_the_last_is_kept(self, tmp_path: Path) -> None:
        with observing(tmp_path) as observer:
            observer.on_start([CONV])
            for version in (1, 2, 3):
                observer.on_model(FittedModel(version, b"m", version, None, 0.1))
            observer.on_model(FittedModel(1, b"p", 16, None, 0.1, ModelKind.PROCESS))
            observer.on_end(snapshot(0))
            observer.close(RunStatus.FINISHED)
        models = [name for name in files(tmp_path) if name.startswith("cost_model/")]
        assert models == [
            f"cost_model/{m}" for m in ("model-1.ubj", "model-3.ubj", "process-1.npz")
        ]

    def test_a_run_that_goes_on_keeps_its_identity(self, tmp_path: Path) -> None:
        for began in (1000.0, 9000.0):  # the second session, hours later
            with observing(tmp_path, clock=Clock(began)) as observer:
                observer.on_start([CONV])
                observer.on_end(snapshot(1))
                observer.close(RunStatus.KILLED)
        first, second = (e for e in entries_of(tmp_path) if isinstance(e, Start))
        assert first.uuid == second.uuid
        folder = TrackingPaths(tmp_path).files
        assert json.loads((folder / "summary.json").read_text())["session"] == 2

    def test_what_a_full_disk_does_not_take_is_counted_and_never_raised(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with observing(tmp_path) as observer:
            observer.on_start([CONV])
            monkeypatch.setattr("tuner.tracking.observer.write_bytes", full)
            observer.keep("best.jsonl", b"{}")
            observer._store.close()
            observer._store = SqliteStore(TrackingPaths(tmp_path).store, read_only=True)
            observer.on_snapshot(snapshot(1))
            observer.close(RunStatus.FINISHED)
            observer._store.close()
            assert observer.lost == 3


class _Hangs(BaseHTTPRequestHandler):
    release: threading.Event

    def do_GET(self) -> None:
        self.release.wait()

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hanging_server() -> Iterator[str]:
    """A server that takes requests and answers none."""
    release = threading.Event()
    handler = type("Handler", (_Hangs,), {"release": release})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    release.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trackers take no samples of the machine, of which a slow one takes more: they wait too."""
    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "false")


@pytest.fixture
def dead_uri() -> Iterator[str]:
    """An address where nobody listens, and that nobody else is given meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@contextmanager
def session(run_dir: Path, uri: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process that tracks a run, and the number of its tracker; to be killed."""
    with observing(run_dir) as observer:
        observer.on_start([CONV])
        observer.close(RunStatus.FINISHED)
    program = (
        "import sys; from pathlib import Path; from tuner.tracking.tracker import TrackerProcess\n"
        "tracker = TrackerProcess.start(Path(sys.argv[1]), sys.argv[2])\n"
        "print(tracker.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(run_dir), uri],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())


@contextmanager
def draining(run_dir: Path, for_s: float = 60.0) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody drains a run by hand."""
    command = [
        sys.executable,
        "-m",
        "tuner.tracking.tracker_process",
        str(run_dir),
        "--drain",
        str(for_s),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        yield process
        process.kill()


def tracking_log(run_dir: Path) -> str:
    log = TrackingPaths(run_dir).log
    return log.read_text() if log.exists() else ""


def state(pid: int) -> str:
    """A process's state as a letter; `-` once it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "-"


def holds_lock(pid: int, run_dir: Path) -> bool:
    lock = TrackingPaths(run_dir).lock
    return lock.exists() and str(pid) in lock.read_text().split()


def wait_until(condition: Callable[[], bool]) -> None:
    """The test's own time limit ends this."""
    waiting = threading.Event()
    while not condition():
        waiting.wait(0.05)


class TestProcess:
    @pytest.mark.usefixtures("no_samples")
    def test_a_server_that_hangs_costs_the_session_only_its_deadline(
        self, tmp_path: Path, hanging_server: str
    ) -> None:
        with observing(tmp_path) as observer:
            observer.on_start([CONV])
            tracker = TrackerProcess.start(tmp_path, hanging_server)
            with closing(open_store(tmp_path, [CONV])) as store:
                store.append_many([(record(i), None) for i in range(250)])
            observer.close(RunStatus.FINISHED)
        outcome = tracker.finish(2.0)
        assert tracker.pid is None
        assert outcome.pushed == 0
        assert outcome.pending == len(entries_of(tmp_path)) + 250 + 2  # these, and their files
        assert "--drain 60" in outcome.warning
        assert "\n" not in outcome.warning

    @pytest.mark.usefixtures("no_samples")
    def test_nobody_waits_for_a_server_that_is_gone(self, tmp_path: Path, dead_uri: str) -> None:
        with observing(tmp_path) as observer:
            observer.on_start([CONV])
            tracker = TrackerProcess.start(tmp_path, dead_uri)
            wait_until(lambda: "refused" in tracking_log(tmp_path))
            observer.close(RunStatus.FINISHED)
        outcome = tracker.finish(ALL_DAY_S)  # the test's own time limit is shorter
        assert (outcome.pushed, outcome.pending) == (0, len(entries_of(tmp_path)))
        assert "refused" in outcome.warning

    def test_one_that_was_killed_is_followed_by_another(self, tmp_path: Path) -> None:
        with observing(tmp_path) as observer:
            observer.on_start([CONV])
            tracker = TrackerProcess.start(tmp_path)
            assert tracker.pid is not None
            os.kill(tracker.pid, signal.SIGKILL)
            wait_until(lambda: tracker.pid is None)
            observer.close(RunStatus.FINISHED)
        assert tracker.finish(ALL_DAY_S).warning == ""

    def test_one_whose_current_folder_is_removed_pushes_all_the_same(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """That of a job on a cluster goes where the job's files are unpacked anew."""
        run, job = tmp_path / "run", tmp_path / "job"
        for folder in (run, job):
            folder.mkdir()
        with observing(run) as observer:
            observer.on_start([CONV])
            monkeypatch.chdir(job)
            tracker = TrackerProcess.start(run)
            monkeypatch.chdir(tmp_path)
            job.rmdir()
            observer.close(RunStatus.FINISHED)
        assert tracker.finish(ALL_DAY_S).warning == ""

    def test_a_tracker_that_cannot_start_is_a_warning(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with observing(tmp_path) as observer:
            observer.on_start([CONV])
            monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
            tracker = TrackerProcess.start(tmp_path)
            observer.close(RunStatus.FINISHED)
        assert tracker.pid is None
        assert "cannot start" in tracker.finish(5.0).warning

    def test_a_tracker_outlives_its_session_only_for_moments(
        self, tmp_path: Path, dead_uri: str
    ) -> None:
        """Even one that was stopped, as while a kernel is timed, when its session was killed."""
        with session(tmp_path, dead_uri) as (killed, tracker):
            os.kill(tracker, signal.SIGSTOP)
            killed.kill()
        wait_until(lambda: state(tracker) in "-Z")

    def test_draining_wakes_a_tracker_that_nobody_else_will(
        self, tmp_path: Path, dead_uri: str
    ) -> None:
        with session(tmp_path, dead_uri) as (killed, tracker):
            wait_until(lambda: holds_lock(tracker, tmp_path))
            os.kill(tracker, signal.SIGSTOP)
            wait_until(lambda: state(tracker) == "T")
            for child in psutil.Process(killed.pid).children():
                if child.pid != tracker:
                    child.kill()  # who would have woken it
            killed.kill()
        assert state(tracker) == "T"
        try:
            with draining(tmp_path):
                wait_until(lambda: state(tracker) != "T")
        finally:
            os.kill(tracker, signal.SIGKILL)

    def test_draining_leaves_the_tracker_of_a_living_session_stopped(
        self, tmp_path: Path, dead_uri: str
    ) -> None:
        with session(tmp_path, dead_uri) as (living, tracker):
            wait_until(lambda: holds_lock(tracker, tmp_path))
            os.kill(tracker, signal.SIGSTOP)
            with draining(tmp_path, for_s=1.2) as drained:
                assert drained.wait() == 1
            assert "another tracker" in TrackingPaths(tmp_path).log.read_text()
            assert state(tracker) == "T"
            living.kill()

    def test_draining_by_hand_needs_a_run(self, tmp_path: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "tuner.tracking.tracker_process", str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1

    def test_a_store_that_cannot_be_read_is_a_warning(self, tmp_path: Path) -> None:
        TrackingPaths(tmp_path).folder.mkdir()
        TrackingPaths(tmp_path).store.write_bytes(b"no database" * 500)
        warning = drain(tmp_path, 0.0).warning
        assert "file is not a database" in warning
        assert "\n" not in warning

    def test_where_nothing_is_pending_there_is_nothing_to_warn_of(self, tmp_path: Path) -> None:
        assert drain(tmp_path / "missing", 1.0) == TrackingOutcome(pushed=0, pending=0)


class TestUri:
    def test_a_server_that_answers_is_fine(self) -> None:
        assert check_uri("") == ""
        assert check_uri("sqlite:////tmp/x.db") == ""

    def test_a_server_that_is_down_is_one_line(self, dead_uri: str) -> None:
        warning = check_uri(dead_uri)
        assert dead_uri in warning
        assert "\n" not in warning

    def test_a_server_that_hangs_is_one_line(self, hanging_server: str) -> None:
        assert "does not answer" in check_uri(hanging_server, timeout_s=0.2)

    def test_a_plain_folder_is_told_apart(self) -> None:
        assert "sqlite:///" in check_uri("file:///tmp/mlruns")
        assert "sqlite:///" in check_uri("./mlruns")

    @pytest.mark.parametrize("uri", ["./mlruns", "mlruns", "/x/mlruns", "file:mlruns", "file:///x"])
    def test_a_run_that_would_be_in_a_plain_folder_is_in_its_own(self, uri: str) -> None:
        """So the command that is shown opens what there is."""
        assert lasting_uri(uri) == ""
        assert open_command(Path("runs/demo"), uri) == open_command(Path("runs/demo"))

    def test_a_database_is_found_from_any_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert lasting_uri("sqlite:///a/b.db") == f"sqlite:///{tmp_path}/a/b.db"
        assert f"sqlite:///{tmp_path}/b.db" in open_command(Path("runs/demo"), "sqlite:///b.db")

    @pytest.mark.parametrize("uri", ["", "sqlite:////x/b.db", "databricks", "postgresql://h/d"])
    def test_what_is_the_same_everywhere_stays(self, uri: str) -> None:
        assert lasting_uri(uri) == uri
        assert check_uri(uri) == ""

    @pytest.mark.parametrize("uri", ["http://[::1", "http://host:port", "http://", "frob://x"])
    def test_what_is_no_address_is_one_line(self, uri: str) -> None:
        warning = check_uri(uri)
        assert uri in warning
        assert "\n" not in warning

    def test_passwords_are_not_shown(self, dead_uri: str) -> None:
        uri = dead_uri.replace("://", "://me:secret@")
        assert "secret" not in check_uri(uri) + open_command(Path("runs/demo"), uri)
        assert redact("at http://a:b@h/x") == "at http://***@h/x"
        assert redact("at postgresql://a:b/c@h/x, as a@b") == "at postgresql://***@h/x, as a@b"
        assert redact("mysql+pymysql://a:b/c@h") == "mysql+pymysql://***@h"
        for harmless in ("at http://h/x by a@b", "http://h:5000/p/team@x"):
            assert redact(harmless) == harmless

    def test_one_with_a_password_is_kept_for_its_owner_alone(self, tmp_path: Path) -> None:
        paths = TrackingPaths(tmp_path)
        Target("http://me:secret@127.0.0.1:5000").save(paths)
        holding = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert holding == [paths.target]
        assert stat.S_IMODE(paths.target.stat().st_mode) == 0o600

    def test_the_command_that_opens_the_page(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)  # a run of that name may be here
        assert open_command(Path("runs/demo"), "") == (
            "mlflow ui --backend-store-uri sqlite:///runs/demo/mlflow.db --port 5000"
        )
        assert open_command(Path("runs/demo"), "http://host:5000") == "http://host:5000"


def test_a_session_of_some_tasks_says_nothing_of_the_whole_model(tmp_path: Path) -> None:
    with observing(tmp_path, CONV, DENSE) as observer:
        observer.on_start([CONV])
        ended = snapshot(3, Phase.DONE)
        observer.on_end(replace(ended, tasks=ended.tasks[:1]))
        observer.close(RunStatus.FINISHED)
    assert metric(tmp_path, None, names.GAIN) == [(0, 1.0)]  # as it began
    assert metric(tmp_path, CONV.key, names.TASK_SHARE) == []
    assert "tasks.json" not in files(tmp_path)
