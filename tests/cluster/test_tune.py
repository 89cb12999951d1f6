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
from tests.cluster.outside import seen_outside
from tests.cluster.sockets import Seen, watched
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


def tune(run: Path, *more: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    done = tuner("tune", *MODEL, "--target", "llvm", "--run", str(run), "--json", *more, env=env)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


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


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, outside: tuple[dict[str, str], list[str]]
) -> Path:
    """A run of 24 trials."""
    folder = tmp_path_factory.mktemp("runs") / "gemm"
    result = tune(folder, "--trials", "24", env=outside[0])
    assert result["ended"] == "trials"
    assert result["trials"] == 24
    assert result["warnings"] == []
    return folder


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
    status = json.loads(tuner("status", str(run), "--json").stdout)
    assert status["trials"] == 24
    assert status["ok"] > 0
    assert status["tasks"][0]["name"] == "gemm"
    assert status["trials_per_s"] > 0


def test_the_best_schedule_is_shown_with_its_trace(run: Path) -> None:
    (task,) = json.loads(tuner("best", str(run), "--json").stdout)["tasks"]
    assert task["latency_ms"] > 0
    assert task["default_ms"] > 0
    assert task["gflops"] > 0
    assert "sch.split(" in tuner("best", str(run), "--task", "gemm").stdout


def test_each_trial_has_one_line_in_the_exported_records(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "records.jsonl"
    assert tuner("export", str(run), "--records", str(out)).returncode == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    keys = {(r["task"], r["candidate"]["key"], r["rung"]) for r in lines}
    assert len(keys) == len(lines) == len(trial_keys(run))
    assert {"status", "seconds", "attempt", "worker", "time", "instance"} <= set(lines[0])
    assert all(r["worker"] and r["device"] and r["toolchain"] for r in lines if r["seconds"])


def test_the_exported_library_has_the_programs_name_and_is_right(run: Path, tmp_path: Path) -> None:
    import tvm

    out = tmp_path / "model.so"
    assert tuner("export", str(run), "--lib", str(out)).returncode == 0
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
    from tuner.options import ModelSpec

    assert tuner("export", str(run), "--database", str(tmp_path)).returncode == 0
    stub_intrinsics()
    manifest = json.loads((run / "run.json").read_text())
    target = tvm.target.Target(json.loads(manifest["target"]))
    spec = ModelSpec(MODEL[0], args=(("m", "192"), ("n", "160"), ("k", "176")))
    lowered = lower(load_model(spec).module, target)
    with target:
        applied = MetaScheduleApplyDatabase(str(tmp_path))(lowered)
    assert applied["gemm"].attrs["tirx.is_scheduled"]


def test_bench_shows_both_sides_and_the_error(run: Path) -> None:
    bench = json.loads(tuner("bench", str(run), "--json").stdout)
    assert bench["tuned_ms"] > 0
    assert bench["untuned_ms"] > 0
    assert bench["onnxruntime_ms"] is None
    assert bench["max_rel_err"] < 1e-4


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
    (best,) = json.loads(tuner("best", str(run), "--json").stdout)["tasks"]
    gain = best["default_ms"] / best["latency_ms"]
    with sqlite3.connect(run / "mlflow.db") as database:
        query = "select value from latest_metrics where key = ?"
        told = {k: database.execute(query, (k,)).fetchone()[0] for k in LAST}
    assert told["model/gain"] == pytest.approx(gain, rel=1e-3)
    assert told["model/latency_ms"] == pytest.approx(best["latency_ms"], rel=1e-3)


def test_the_history_accounts_for_the_workers_time(run: Path) -> None:
    with closing(SqliteStore(run / "records.sqlite", read_only=True)) as store:
        told, (session,) = store.history(), store.sessions()
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


def test_going_on_measures_nothing_twice_and_a_page_that_cannot_be_written_is_a_warning(
    run: Path,
) -> None:
    before = trial_keys(run)
    (run / "report.html").unlink()
    (run / "report.html").mkdir()
    result = tune(run, "--trials", "40")
    assert result["trials"] == 40
    (warning,) = result["warnings"]
    assert warning.startswith("report.html was not written: ")
    assert "Is a directory" in warning
    assert_it_says_what_was_won(run, result)
    after = trial_keys(run)
    assert set(before) <= set(after)
    assert len(set(after)) == len(after)


def assert_it_says_what_was_won(run: Path, result: dict[str, Any]) -> None:
    said = result["closing"]
    (best,) = json.loads(tuner("best", str(run), "--json").stdout)["tasks"]
    (won,), (left,) = said["won"], said["left"]
    assert (won["task"], won["after_ms"]) == ("gemm", pytest.approx(best["latency_ms"]))
    assert said["before_ms"] == pytest.approx(best["default_ms"])
    assert (left["share"], left["trials"]) == (1.0, 40)
    assert f"tuner bench {run}" in [step["command"] for step in result["next"]]


def small_network(path: Path) -> None:
    """A convolution, a bias, a rectifier, a pooling and a dense layer, with seeded weights."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape, dtype=np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "d"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [weight("w", 8, 3, 3, 3), weight("b", 8), weight("d", 512, 10)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, str(path))


def test_a_whole_network_is_tuned_compared_with_onnxruntime_and_exported(tmp_path: Path) -> None:
    import tvm

    model, run, out = tmp_path / "small.onnx", tmp_path / "run", tmp_path / "model.so"
    small_network(model)
    arguments = ["--target", "llvm", "--trials", "16", "--run", str(run), "--json"]
    done = tuner("tune", str(model), *arguments)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["tasks"]) >= 3
    model.unlink()  # the run keeps a copy of its own

    bench = json.loads(tuner("bench", str(run), "--json").stdout)
    assert bench["reference"] == "onnxruntime"
    assert bench["onnxruntime_ms"] > 0
    assert bench["max_rel_err"] < 1e-4

    assert tuner("export", str(run), "--lib", str(out)).returncode == 0
    machine = tvm.relax.VirtualMachine(tvm.runtime.load_module(str(out)), tvm.cpu())
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16), dtype=np.float32)
    assert machine["main"](tvm.runtime.tensor(x)).shape == (1, 10)


def start(run: Path, *, mark: str = "") -> subprocess.Popen[str]:
    command = ["tune", *MODEL, "--target", "llvm", "--run", str(run), "--trials", "5000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tuner", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, MARK: mark},
    )
    deadline_s = time.monotonic() + 90
    while time.monotonic() < deadline_s:
        if len(trial_keys(run)) > 5:
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
    process.send_signal(signal.SIGKILL)
    process.communicate()
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


def test_a_killed_run_is_taken_over_and_no_trial_is_measured_twice(killed: Killed) -> None:
    went_on = tune(killed.run, "--trials", str(len(killed.trials) + 10))
    assert went_on["ended"] == "trials"
    keys = trial_keys(killed.run)
    assert set(killed.trials) <= set(keys)
    assert len(set(keys)) == len(keys)


def test_a_killed_run_leaves_no_process(killed: Killed) -> None:
    _, alive = psutil.wait_procs(marked(killed.mark), timeout=30)
    assert [process.cmdline() for process in alive] == []


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)],
)
def test_a_signal_ends_a_run_in_order(tmp_path: Path, number: signal.Signals, code: int) -> None:
    run = tmp_path / "run"
    process = start(run)
    with tuner_in_a_pty("top", str(run), cwd=tmp_path) as terminal:  # it disturbs nobody
        terminal.until(r"at work +\d:\d\d +\d+ ")
        terminal.until(r"gemm +1 +\d+ ")
        terminal.press(b"q" if number is signal.SIGINT else b"\x03")
        assert terminal.end() == 0
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == code, output
    assert "Traceback" not in output
    ended, *closing = output.splitlines()[-8:]
    assert re.fullmatch(r"Stopped by a signal: \d+ trials, 0:\d\d of this session\.", ended)
    heads = [line.split()[0] for line in closing if not line.startswith("     ")]
    assert heads == ["won", "left", "page", "next"]
    (go_on,) = (line for line in closing if line.startswith("  next"))
    assert go_on.startswith(f"  next  tuner tune --run {run} --trials 5000 ")
    out = tmp_path / "model.so"
    assert tuner("export", str(run), "--lib", str(out)).returncode == 0


def test_a_device_that_nobody_has_is_refused_at_once(tmp_path: Path) -> None:
    target = '{"kind": "cuda", "arch": "sm_90"}'
    done = tuner("tune", *MODEL, "--target", target, "--run", str(tmp_path / "run"))
    assert done.returncode == 1
    assert "has no CUDA device" in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 3


def test_a_tracking_server_that_is_down_is_a_warning(tmp_path: Path) -> None:
    down = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    result = tune(tmp_path / "run", "--trials", "12", env=down)
    assert result["trials"] == 12
    assert any("does not answer" in warning for warning in result["warnings"])
