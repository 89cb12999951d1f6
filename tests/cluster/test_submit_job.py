"""A whole network tuned by a job on a cluster, and what others do with its run, all on loopback."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.cluster.loopback_head import ROOT, ray_head
from tests.cluster.output import output_of
from tuner.record import Status, record_from_json
from tuner.runs.folder import RunFolder
from tuner.runs.import_check import read_check
from tuner.tracking.tracker import drain

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.slow]

MODEL = ["gemm.py:gemm", "--arg", "m=96", "--arg", "n=64", "--arg", "k=80"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the machine of the jobs works on runs that live elsewhere."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def environment(cache: Path) -> Iterator[dict[str, str]]:
    """What the head, its jobs and who submits them have in common."""
    with ray_head(XDG_CACHE_HOME=str(cache)) as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with models in it, as a user has one."""
    made = tmp_path / "project"
    made.mkdir()
    shutil.copy(ROOT / "examples" / "gemm.py", made)
    small_network(made / "small.onnx")
    return made


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


def submit(environment: dict[str, str], folder: Path, *words: str) -> subprocess.Popen[str]:
    """The example, as it is called from the user's folder."""
    return subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "submit_job.py"), *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def artifact_of(run: Path, name: str) -> Path:
    """A file that MLflow has of a run."""
    (found,) = (run / "mlartifacts").rglob(name)
    return found


def in_mlflow(run: Path) -> tuple[set[str], str]:
    """How the run and its tasks ended as MLflow knows them, and the winners that are with it."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{run / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tuner")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [r for r in runs if "mlflow.parentRunId" not in r.data.tags]
    kept = Path(parent.info.artifact_uri.removeprefix("file://"), "best.jsonl")
    return {r.info.status for r in runs}, kept.read_text()


def trials(run: Path) -> int:
    with sqlite3.connect(f"file:{run / 'records.sqlite'}?mode=ro", uri=True) as database:
        return int(database.execute("select count(*) from record").fetchone()[0])


@pytest.mark.usefixtures("bench_without_pauses")
def test_a_network_is_tuned_by_a_job_and_used_by_another_machine(
    environment: dict[str, str],
    cache: Path,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import tvm

    url = (tmp_path / "shared" / "run").as_uri()
    words = ["small.onnx", "--target", "llvm", "--trials", "16", "--run", url]
    job = submit(environment, folder, "--id", "first", "--deadline-s", "240", *words)
    said, _ = job.communicate(timeout=280)
    assert job.returncode == 0, said
    assert "submitted first" in said
    assert said.count("The trial budget is spent") == 1
    assert "first: succeeded" in said.splitlines()[-1]
    (page,) = (cache / "elastic-tuner").rglob("run*/report.html")
    assert all(f'aria-label="{chart}"' in page.read_text() for chart in ("Over time", "Timeline"))
    assert artifact_of(page.parent, "report.html").read_text() == page.read_text()
    check = read_check(RunFolder(page.parent).import_check)
    assert check is not None
    assert check.state == "passed", check.line

    shutil.rmtree(folder)  # the run keeps a copy of the model
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "reader"))  # as another machine has one
    out = tmp_path / "model.so"
    status = json.loads(output_of("status", url, "--json"))
    assert status["trials"] == 16
    assert len(status["tasks"]) >= 3
    bench = json.loads(output_of("bench", url, "--json"))
    assert bench["reference"] == "onnxruntime"
    assert min(bench["onnxruntime_ms"], bench["untuned_ms"], bench["tuned_ms"]) > 0
    assert bench["max_rel_err"] < 1e-4
    output_of("export", url, "--lib", str(out))
    machine = tvm.relax.VirtualMachine(tvm.runtime.load_module(str(out)), tvm.cpu())
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16), dtype=np.float32)
    assert machine["main"](tvm.runtime.tensor(x)).shape == (1, 10)


@pytest.mark.long
def test_a_request_that_cannot_be_met_fails_with_the_commands_own_code(
    environment: dict[str, str], folder: Path
) -> None:
    job = submit(environment, folder, "missing.onnx", "--target", "llvm")
    said, _ = job.communicate(timeout=120)
    assert "missing.onnx" in said
    assert ": failed: " in said.splitlines()[-1]
    assert job.returncode == 1


@pytest.mark.long
def test_ctrl_c_stops_the_job_and_keeps_what_was_measured_and_the_winners(
    environment: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = [*MODEL, "--target", "llvm", "--trials", "100000", "--until=0", "--run", str(run)]
    job = submit(environment, folder, *words)
    deadline_s = time.monotonic() + 150.0
    while time.monotonic() < deadline_s and job.poll() is None:
        with contextlib.suppress(sqlite3.Error):
            if trials(run) >= 3:
                break
        time.sleep(0.5)
    job.send_signal(signal.SIGINT)
    said, _ = job.communicate(timeout=150)
    assert job.returncode == 3, said
    assert "stopped" in said.splitlines()[-1]
    assert "Stopped by a signal" in said
    assert trials(run) >= 3
    # Who is interrupted does not wait long for MLflow, which makes its database first.
    assert drain(run, 120.0).pending == 0
    statuses, winners = in_mlflow(run)
    assert statuses == {"KILLED"}
    assert winners == (run / "tracking" / "files" / "best.jsonl").read_text()
    (winner,) = [record_from_json(line) for line in winners.splitlines()]
    assert winner.measurement.status is Status.OK


def test_who_has_no_token_is_told_so(environment: dict[str, str], folder: Path) -> None:
    without = {**environment, "RAY_AUTH_MODE": "disabled"}
    job = submit(without, folder, "gemm.py:gemm")
    said, _ = job.communicate(timeout=60)
    assert job.returncode == 1
    assert "takes no jobs of ours" in said
    assert "Traceback" not in said
