"""The whole main job on real TVM, Ray and MLflow: a small program, a few trials."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from benchmarks.fleet.guard import MARK, marked
from tests.cluster.in_a_pty import tuner_in_a_pty
from tests.cluster.output import output_of
from tests.cluster.outside import seen_outside
from tests.cluster.sockets import Seen, watched
from tuner.storage.history import History
from tuner.storage.sqlite_store import SqliteStore
from tuner.utilisation import BUSY, WAITING

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[2] / "examples"
# Large enough that on a busy machine, too, a schedule is found that beats none.
LAST = ("model/gain", "model/latency_ms")
MODEL = [f"{EXAMPLES / 'gemm.py'}:gemm", "--arg", "m=192", "--arg", "n=160", "--arg", "k=176"]


def tuner(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tuner", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, **(env or {})},
    )


def trial_keys(run: Path) -> list[tuple[Any, ...]]:
    query = "select task_key, candidate_key, rung from record"
    try:
        with sqlite3.connect(f"file:{run / 'records.sqlite'}?mode=ro", uri=True) as database:
            return database.execute(query).fetchall()
    except sqlite3.OperationalError:
        return []  # it is just being made


@pytest.fixture(scope="module")
def outside() -> Iterator[tuple[dict[str, str], list[str]]]:
    """An environment in which all ways out are watched, and who took one."""
    with seen_outside() as watched:
        yield watched


@dataclass(frozen=True)
class Ended:
    """A run of 24 trials, and what the command said of it."""

    folder: Path
    result: dict[str, Any]


@pytest.fixture(scope="module")
def ended(
    tmp_path_factory: pytest.TempPathFactory, outside: tuple[dict[str, str], list[str]]
) -> Ended:
    folder = tmp_path_factory.mktemp("runs") / "gemm"
    # Threads of a kernel wait for each other, on a busy machine for longer than the default takes.
    target = '{"kind":"llvm","num-cores":1}'
    words = ["--target", target, "--run", str(folder), "--trials", "24", "--json"]
    done = tuner("tune", *MODEL, *words, env=outside[0])
    assert done.returncode == 0, done.stderr
    return Ended(folder, json.loads(done.stdout))


@pytest.fixture
def run(ended: Ended) -> Path:
    return ended.folder


def test_it_says_what_was_won_and_what_to_do_next(ended: Ended) -> None:
    result = ended.result
    assert (result["ended"], result["trials"], result["warnings"]) == ("trials", 24, [])
    said = result["closing"]
    (best,) = json.loads(output_of("best", str(ended.folder), "--json"))["tasks"]
    (won,), (left,) = said["won"], said["left"]
    assert (won["task"], won["after_ms"]) == ("gemm", pytest.approx(best["latency_ms"]))
    assert said["before_ms"] == pytest.approx(best["default_ms"])
    assert (left["share"], left["trials"]) == (1.0, 24)
    assert f"tuner bench {ended.folder}" in [step["command"] for step in result["next"]]


def test_nothing_is_sent_to_anybody_outside(
    run: Path, outside: tuple[dict[str, str], list[str]]
) -> None:
    environment, asked = outside
    assert run.is_dir()
    assert asked == []
    who_would_be_seen = "import requests; requests.post('https://statistics.example', timeout=9)"
    command = [sys.executable, "-c", who_would_be_seen]
    subprocess.run(command, env={**os.environ, **environment}, capture_output=True, check=False)
    assert asked == ["CONNECT statistics.example:443"]


def test_status_counts_what_was_measured(run: Path) -> None:
    status = json.loads(output_of("status", str(run), "--json"))
    assert status["trials"] == 24
    assert status["ok"] > 0
    assert status["tasks"][0]["name"] == "gemm"
    assert status["trials_per_s"] > 0


def test_the_best_schedule_is_shown_with_its_trace(run: Path) -> None:
    (task,) = json.loads(output_of("best", str(run), "--json"))["tasks"]
    assert task["latency_ms"] > 0
    assert task["default_ms"] > 0
    assert task["gflops"] > 0
    assert "sch.split(" in output_of("best", str(run), "--task", "gemm")


def test_each_trial_has_one_line_in_the_exported_records(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "records.jsonl"
    output_of("export", str(run), "--records", str(out))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    keys = {(r["task"], r["candidate"]["key"], r["rung"]) for r in lines}
    assert len(keys) == len(lines) == len(trial_keys(run))
    assert {"status", "seconds", "attempt", "worker", "time", "instance"} <= set(lines[0])
    assert all(r["worker"] and r["device"] and r["toolchain"] for r in lines if r["seconds"])


def test_the_exported_library_has_the_programs_name_and_is_right(run: Path, tmp_path: Path) -> None:
    import tvm

    out = tmp_path / "model.so"
    output_of("export", str(run), "--lib", str(out))
    a = np.random.default_rng(0).random((192, 176), dtype=np.float32)
    b = np.random.default_rng(1).random((176, 160), dtype=np.float32)
    c = tvm.runtime.tensor(np.full((192, 160), np.nan, dtype=np.float32))
    library = tvm.runtime.load_module(str(out))
    library["gemm"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-4)


def test_stock_tvm_applies_the_exported_database(run: Path, tmp_path: Path) -> None:
    import tvm
    from tvm.relax.transform import MetaScheduleApplyDatabase

    from spaces.frontends.model import load_model
    from spaces.intrinsics.registration import stub_intrinsics
    from spaces.lowering.lower import lower
    from tuner.request.model_spec import ModelSpec

    output_of("export", str(run), "--database", str(tmp_path))
    stub_intrinsics()
    manifest = json.loads((run / "run.json").read_text())
    target = tvm.target.Target(json.loads(manifest["target"]))
    spec = ModelSpec(MODEL[0], args=(("m", "192"), ("n", "160"), ("k", "176")))
    lowered = lower(load_model(spec).module, target)
    with target:
        applied = MetaScheduleApplyDatabase(str(tmp_path))(lowered)
    assert applied["gemm"].attrs["tirx.is_scheduled"]


def test_mlflow_has_the_run_the_task_and_every_latency(run: Path) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{run / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tuner")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [r for r in runs if "mlflow.parentRunId" not in r.data.tags]
    (child,) = [r for r in runs if "mlflow.parentRunId" in r.data.tags]
    assert parent.info.status == "FINISHED"
    assert parent.data.params["trials"] == "24"
    history = client.get_metric_history(child.info.run_id, "task/best_us")
    assert len(history) >= 24
    assert client.list_artifacts(parent.info.run_id)


def test_mlflow_ends_with_the_gain_of_what_was_timed_again(run: Path) -> None:
    (best,) = json.loads(output_of("best", str(run), "--json"))["tasks"]
    gain = best["default_ms"] / best["latency_ms"]
    with sqlite3.connect(run / "mlflow.db") as database:
        query = "select value from latest_metrics where key = ?"
        told = {k: database.execute(query, (k,)).fetchone()[0] for k in LAST}
    assert told["model/gain"] == pytest.approx(gain, rel=1e-3)
    assert told["model/latency_ms"] == pytest.approx(best["latency_ms"], rel=1e-3)


def test_the_history_accounts_for_the_workers_time(run: Path) -> None:
    with closing(SqliteStore(run / "records.sqlite", read_only=True)) as store:
        told, (session,) = store.get(History), store.sessions()
        assert sum(record.predicted is not None for record in store.scan()) > 5
        (task,) = store.tasks()
    for kind, seconds in session.utilisation.items():
        for use in (BUSY, WAITING):
            spans = [s for s in told.spans if (s.kind, s.category) == (kind, use)]
            shown_s = sum(span.ended_s - span.started_s for span in spans)
            assert shown_s == pytest.approx(seconds.get(use, 0.0), abs=2.0)
            assert {span.task_key for span in spans} <= {task.key}
            assert all(
                session.started_s - 60 < s.started_s < s.ended_s < session.heartbeat_s + 60
                for s in spans
            )


def test_the_run_ends_with_a_page_that_shows_it(run: Path) -> None:
    page = (run / "report.html").read_text()
    assert "as fast as untuned" in page
    assert all(f'aria-label="{chart}"' in page for chart in ("Over time", "Timeline"))
    assert "still at work" not in page
    (kept,) = (run / "mlartifacts").rglob("report.html")
    assert kept.read_text() == page
    plots = {file.name: file.read_bytes() for file in (run / "plots").glob("*.png")}
    assert {"over-time.png", "timeline.png"} <= set(plots)
    assert {p.name: p.read_bytes() for p in (run / "mlartifacts").rglob("plots/*.png")} == plots


def start(
    run: Path, *, mark: str = "", after: int = 5, env: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """A long run at work, once it has more than so many records."""
    words = ["tune", *MODEL, "--target", "llvm", "--run", str(run), "--trials", "5000"]
    words += ["--until=0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tuner", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, MARK: mark, **(env or {})},
    )
    deadline_s = time.monotonic() + 90
    while time.monotonic() < deadline_s:
        if len(trial_keys(run)) > after:
            return process
        time.sleep(0.3)
    process.kill()
    pytest.fail(f"nothing was measured: {process.communicate()[0]}")


@dataclass(frozen=True)
class Killed:
    """A run that was killed at work: what was seen before, and what was left."""

    run: Path
    mark: str
    seen: Seen
    refused: subprocess.CompletedProcess[str]
    trials: list[tuple[Any, ...]]


def is_search(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):  # it has just ended
        return process.name().startswith("ray::SearchHost")
    return False


def is_tracker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):  # it has just ended
        return "tuner.tracking.tracker_process" in process.cmdline()
    return False


def wait_for_quiet(mark: str) -> None:
    """Wait until a kernel is timed, and all else is frozen."""
    (tracker,) = (p for p in marked(mark) if is_tracker(p))
    deadline_s = time.monotonic() + 60
    while tracker.status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline_s, "nothing is timed"
        time.sleep(0.001)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    run, mark = tmp_path_factory.mktemp("killed") / "run", uuid.uuid4().hex
    with watched(mark) as seen:
        process = start(run, mark=mark)
        refused = tuner("tune", *MODEL, "--target", "llvm", "--run", str(run))
        wait_for_quiet(mark)
    searches = [one for one in marked(mark) if is_search(one)]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert psutil.wait_procs(searches, timeout=60)[1] == []  # it may go on for a moment
    return Killed(run, mark, seen, refused, trial_keys(run))


def test_a_run_at_work_is_refused_to_others(killed: Killed) -> None:
    assert killed.refused.returncode == 1
    assert "in use by process" in killed.refused.stderr


def test_a_run_listens_on_loopback_only(killed: Killed) -> None:
    """All of its processes, from the first to the last: Ray's, the workers, the tracker."""
    who = " ".join(sorted({one.process for one in killed.seen.listeners}))
    for process in ("gcs_server", "raylet", "ray::SearchHost", "ray::Runner", "ray::Builder"):
        assert process in who
    assert killed.seen.outside == []


def test_a_killed_run_is_taken_over_until_a_signal_ends_it_in_order(killed: Killed) -> None:
    """Nothing is measured twice. What cannot be told or written meanwhile is a warning."""
    run = killed.run
    (run / "report.html").mkdir()
    down = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    process = start(run, after=len(killed.trials) + 5, env=down)
    with tuner_in_a_pty("top", str(run), cwd=run.parent) as terminal:  # it disturbs nobody
        terminal.until(r"at work +\d:\d\d +\d+ ")
        terminal.until(r"gemm +1 +\d+ ")
        terminal.press(b"q")
        assert terminal.end() == 0
    output = end_in_order(process, signal.SIGINT, run, heads=["won", "left", "next"])
    assert "does not answer" in output
    assert re.search(r"report\.html was not written: .*Is a directory", output)
    after = trial_keys(run)
    assert set(killed.trials) < set(after)
    assert len(set(after)) == len(after)


def end_in_order(
    process: subprocess.Popen[str], number: signal.Signals, run: Path, heads: list[str]
) -> str:
    """Send a run a signal; give what it said after it ended with its last lines."""
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number, output
    assert "Traceback" not in output
    closing = output.splitlines()
    ended = r"Stopped by a signal: \d+ trials, \d+:\d\d of this session\."
    (at,) = (number for number, line in enumerate(closing) if re.fullmatch(ended, line))
    said = [line.split()[0] for line in closing[at + 1 :] if re.match("  [a-z]", line)]
    assert said == heads
    (go_on,) = (line for line in closing if line.startswith("  next"))
    assert go_on.startswith(f"  next  tuner tune --run {run} --trials 5000 ")
    return output


def test_a_killed_run_leaves_no_process(killed: Killed) -> None:
    """Agents of Ray ask for a minute where their cluster is, on a busy machine."""
    _, alive = psutil.wait_procs(marked(killed.mark), timeout=150)
    assert [process.cmdline() for process in alive] == []


@pytest.mark.long
def test_a_service_that_is_told_to_end_ends_in_order(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(run)
    with tuner_in_a_pty("top", str(run), cwd=tmp_path) as terminal:
        terminal.until(r"at work +\d:\d\d +\d+ ")
        terminal.press(b"\x03")
        assert terminal.end() == 0
    end_in_order(process, signal.SIGTERM, run, heads=["won", "left", "page", "next"])
    output_of("export", str(run), "--lib", str(tmp_path / "model.so"))


@pytest.mark.long
def test_a_device_that_nobody_has_is_refused_at_once(tmp_path: Path) -> None:
    target = '{"kind": "cuda", "arch": "sm_90"}'
    done = tuner("tune", *MODEL, "--target", target, "--run", str(tmp_path / "run"))
    assert done.returncode == 1
    assert "has no CUDA device" in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 3
