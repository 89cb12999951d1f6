"""`tuner tune --precision`, from a file of ONNX to a verified library, as users run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.spaces.precision.typed_models import WIDTH, dense, normal

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.slow, pytest.mark.long]


def tuner(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tuner", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("asked", ["int8", "int4", "bf16"])
def test_a_run_is_tuned_verified_benched_and_exported(tmp_path: Path, asked: str) -> None:
    model, run = tmp_path / "dense.onnx", tmp_path / "run"
    onnx.save(dense(), str(model))
    rows = tmp_path / "rows.npz"
    np.savez(rows, x=np.stack([3 * normal(6, WIDTH, seed=seed) for seed in range(4)]))
    flags = ["--calibrate", rows] if asked == "int8" else []
    done = tuner(
        "tune", model, "--precision", asked, *flags, "--trials", 12, "--time-budget", "2m",
        "--run", run,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"tuner: precision {asked}; " in done.stderr
    manifest = json.loads((run / "run.json").read_text())
    relative = manifest["precision"]["error"]["relative"]
    assert 0 < relative < 0.5
    assert f"relative {relative:.3g}" in done.stderr
    checked = tuner("verify", run, "--json")
    told = json.loads(checked.stdout)["tasks"]
    assert told
    # On a busy machine a time may differ; a value may not.
    assert {task["verdict"] for task in told} <= {"same", "right", "differs"}, checked.stdout
    assert all(task["latency_ms"] is not None for task in told), "an output that is wrong has none"
    benched = json.loads(tuner("bench", run, "--json").stdout)
    assert benched["reference"] == "onnxruntime"
    assert 0 < benched["max_rel_err"] < 3 * relative, "against the model as it is"
    library = tmp_path / "dense.so"
    assert tuner("export", run, "--lib", library).returncode == 0
    assert library.is_file()


def test_a_larger_error_is_one_line_and_no_run(tmp_path: Path) -> None:
    onnx.save(dense(), str(tmp_path / "dense.onnx"))
    done = tuner(
        "tune", tmp_path / "dense.onnx", "--precision", "int4", "--max-error", "0.1%",
        "--run", tmp_path / "run",
    )  # fmt: skip
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if "max-error" in line]
    assert said == [done.stderr.splitlines()[-1]]
    assert said[0].startswith("tuner: --precision int4: the relative error is 0.")
    assert not (tmp_path / "run").exists()
