"""A run on the emulated device by commands, on real TVM, Ray and MLflow."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.needed import needs_nvcc
from tuner.view.words import MODELLED

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.slow, pytest.mark.long]

EXAMPLES = Path(__file__).parents[2] / "examples"
SIZES = ("--arg", "m=64", "--arg", "n=72", "--arg", "k=48")
PROGRAM = [f"{EXAMPLES / 'gemm.py'}:gemm", *SIZES]
_ONE_COLUMN = """
from tvm import te, topi

def one_column():
    x, w = te.placeholder((1000, 512), "float16", "x"), te.placeholder((1, 512), "float16", "w")
    return te.create_prim_func([x, w, topi.nn.dense(x, w)])
"""
NETWORK = [f"{Path(__file__).parent / 'app' / 'passes' / 'network.py'}:network"]


def tuner(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command, as a user gives it."""
    return subprocess.run(
        [sys.executable, "-m", "tuner", *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ},
    )


def report_of(*arguments: str) -> dict[str, Any]:
    """What a command prints as JSON."""
    done = tuner(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "gemm"
    flags = ("--measure", "emulated", "--trials", "10", "--run", str(folder))
    result = report_of("tune", *PROGRAM, *flags)
    assert (result["trials"], result["statuses"], result["modelled"]) == (10, {"ok": 10}, True)
    return folder


def test_a_program_is_tuned_and_its_times_are_said_to_be_a_model_s(run: Path) -> None:
    for name in ("best", "status"):
        said = tuner(name, str(run))
        assert said.returncode == 0
        assert MODELLED in said.stderr
    (task,) = report_of("best", str(run))["tasks"]
    assert task["latency_ms"] <= task["default_ms"]
    assert MODELLED in (run / "report.html").read_text()
    with sqlite3.connect(f"file:{run / 'records.sqlite'}?mode=ro", uri=True) as database:
        devices = {row[0] for row in database.execute("select distinct device from record")}
    assert devices == {"emulated sm_80"}
    tags = sqlite3.connect(f"file:{run / 'mlflow.db'}?mode=ro", uri=True)
    found = dict(tags.execute("select key, value from tags where key in ('times', 'target')"))
    tags.close()
    assert found == {"times": MODELLED, "target": "emulated-sm_80"}


def test_the_whole_program_is_benched_by_the_model(run: Path) -> None:
    (task,) = report_of("best", str(run))["tasks"]
    bench = report_of("bench", str(run))
    assert bench["modelled"]
    assert bench["tuned_ms"] == pytest.approx(task["latency_ms"])
    assert bench["untuned_ms"] >= bench["tuned_ms"]
    assert bench["max_rel_err"] < 1e-4
    assert MODELLED in tuner("bench", str(run)).stdout


@needs_nvcc
def test_the_library_is_for_the_device_that_it_stands_for(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.so"
    assert tuner("export", str(run), "--lib", str(out)).returncode == 0
    assert b"sm_80" in out.read_bytes()


def test_a_run_on_it_goes_on_but_is_none_on_a_real_device(run: Path) -> None:
    said = tuner("tune", "--run", str(run), "--trials", "10", "--target", "cuda")
    assert said.returncode == 1
    assert tuner("tune", "--run", str(run), "--trials", "11", "--json").returncode == 0


def test_a_network_is_tuned_and_right(tmp_path: Path) -> None:
    folder = tmp_path / "network"
    flags = ("--measure", "emulated", "--trials", "12", "--run", str(folder))
    result = report_of("tune", *NETWORK, *flags)
    assert result["statuses"].keys() <= {"ok", "censored"}
    assert len(result["tasks"]) > 1
    bench = report_of("bench", str(folder))
    assert bench["modelled"]
    assert bench["tuned_ms"] <= bench["untuned_ms"]
    assert bench["max_rel_err"] < 1e-3


def test_a_public_case_is_searched_and_each_kernel_is_right(tmp_path: Path) -> None:
    """apache/tvm#14137: a product of halves with one column."""
    model, folder = tmp_path / "case.py", str(tmp_path / "run")
    model.write_text(_ONE_COLUMN)
    flags = ("--measure", "emulated", "--trials", "12", "--run", folder)
    result = report_of("tune", f"{model}:one_column", *flags)
    assert result["trials"] == 12
    assert set(result["statuses"]) <= {"ok", "censored", "duplicate"}
    (task,) = report_of("best", folder)["tasks"]
    assert task["latency_ms"] <= task["default_ms"]
