"""The main job on a model with a symbolic dimension, on real TVM, Ray and MLflow."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.app.cli import run as command
from tests.cluster.output import output_of

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.slow]

DENSE = f"{Path(__file__).parents[2] / 'examples' / 'dense.py'}:dense"
MODEL = [DENSE, "--arg", "features=48", "--arg", "layers=1", "--dim", "T=1,3,7"]


def tune(run: Path, trials: int) -> dict[str, Any]:
    flags = ("--target", "llvm", "--run", str(run), "--trials", str(trials), "--json")
    words = [sys.executable, "-m", "tuner", "tune", *MODEL, *flags]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 16 pairs of a kernel and a shape."""
    folder = tmp_path_factory.mktemp("runs") / "dense"
    result = tune(folder, 16)
    assert (result["trials"], result["warnings"]) == (16, [])
    assert result["statuses"].keys() <= {"ok", "censored"}
    return folder


def test_trials_are_pairs_of_a_kernel_and_a_shape(run: Path) -> None:
    with sqlite3.connect(f"file:{run / 'records.sqlite'}?mode=ro", uri=True) as database:
        query = "select candidate_key, instance, rung from record"
        pairs = database.execute(query).fetchall()
    assert len(pairs) == len(set(pairs))
    shapes = {json.loads(instance)[0][1] for _, instance, _ in pairs}
    assert shapes == {16, 48, 112}, "the dimension is 16 T"


def test_the_kernels_are_shown_with_their_tree_and_what_each_shape_takes(run: Path) -> None:
    (task,) = json.loads(output_of("best", str(run), "--json"))["tasks"]
    found = task["kernel_set"]
    assert task["latency_ms"] < task["default_ms"]
    assert 1 <= len(found["kernels"]) == len(found["traces"]) <= 4
    assert [s["shape"] for s in found["shapes"]] == [{"T_x16": n} for n in (16, 48, 112)]
    assert all(s["measured"] for s in found["shapes"])
    assert "kernel 0" in found["tree"]


def test_the_library_is_right_for_every_size(run: Path, tmp_path: Path) -> None:
    import tvm
    from tvm import relax

    out = tmp_path / "model.so"
    said = output_of("export", str(run), "--lib", str(out))
    assert said.startswith(f"wrote {out}: {out.stat().st_size:,} bytes, ")
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(out)), tvm.cpu())
    rng = np.random.default_rng(0)
    weight = (rng.standard_normal((48, 48)) * np.sqrt(2 / 48)).astype("float32")
    bias = rng.standard_normal(48).astype("float32")
    for rows in (0, 1, 15, 16, 17, 47, 112, 113, 401):
        x = np.random.default_rng(rows).standard_normal((rows, 48)).astype("float32")
        got = machine["main"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_allclose(got, np.maximum(x @ weight + bias, 0), rtol=1e-4, atol=1e-4)


def test_a_database_of_symbolic_dimensions_alone_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["export", str(run), "--database", str(tmp_path / "database")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("tuner: --database: it holds one schedule for each program")
    assert said.count("\n") == 1
    assert not (tmp_path / "database").exists()


@pytest.mark.usefixtures("bench_without_pauses")
def test_bench_times_the_shapes_that_are_named(run: Path) -> None:
    report = json.loads(output_of("bench", str(run), "--dim", "T=2,7", "--json"))
    assert [s["shape"] for s in report["shapes"]] == [{"T": 2}, {"T": 7}]
    assert all(s["max_rel_err"] < 1e-4 for s in report["shapes"])


@pytest.mark.long
def test_going_on_measures_no_pair_twice(run: Path) -> None:
    with sqlite3.connect(f"file:{run / 'records.sqlite'}?mode=ro", uri=True) as database:
        before = set(database.execute("select candidate_key, instance, rung from record"))
    result = tune(run, 22)
    assert result["trials"] == 22
    (left,), (task,) = result["closing"]["left"], result["tasks"]
    assert left["latency_ms"] == pytest.approx(task["best_ms"]), "that of the kernels' set"
    with sqlite3.connect(f"file:{run / 'records.sqlite'}?mode=ro", uri=True) as database:
        after = database.execute("select candidate_key, instance, rung from record").fetchall()
    assert before < set(after)
    assert len(after) == len(set(after))
