"""Two runs on a cluster with one device."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.loopback_head import ROOT, ray_head

pytestmark = [
    pytest.mark.ray,
    pytest.mark.tvm,
    pytest.mark.slow,
    pytest.mark.long,
]
_PATIENCE_S = 200.0


def tune(folder: Path, name: str, budget: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    words = [f"{ROOT}/examples/gemm.py:gemm", *("--arg", "m=64", "--arg", "n=64", "--arg", "k=64")]
    words += ["--target", "llvm", "--trials", "100000", "--time-budget", budget]
    words += ["--until=0", "--run", name]
    with (folder / f"{name}.log").open("wb") as log:
        command = [sys.executable, "-m", "tuner", "tune", *words]
        return subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=folder)


def test_the_second_of_two_runs_on_one_device_waits_with_its_clock_stopped(tmp_path: Path) -> None:
    with ray_head() as env:
        runs = [tune(tmp_path, "first", "60s", env)]
        try:
            until_s = time.monotonic() + _PATIENCE_S
            while "search " not in (tmp_path / "first.log").read_text():
                assert time.monotonic() < until_s
                time.sleep(0.5)
            runs.append(tune(tmp_path, "second", "10s", env))
            assert [run.wait(_PATIENCE_S) for run in runs] == [0, 0]
        finally:
            for run in runs:
                run.kill()
                run.wait(10.0)
    said = (tmp_path / "second.log").read_text()
    assert f"waits for a device, taken by {tmp_path}/first; its time has not begun" in said
    assert "gain" in said, "it had its time"
