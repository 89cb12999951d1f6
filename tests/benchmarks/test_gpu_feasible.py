"""The figures of proposals for a GPU can be made again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import feasible
from tests.needed import needs_nvcc


@needs_nvcc
@pytest.mark.tvm
@pytest.mark.long
def test_each_architecture_has_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, name = tmp_path / "feasible.json", "softmax 4096x4096"
    counts = ["--count", "20", "--builds", "2"]
    monkeypatch.setattr(sys, "argv", ["feasible", "--only", name, *counts, "--out", str(out)])
    monkeypatch.setenv("TVM_COMPILE_FORCE_FALLBACK", "1")
    assert feasible.main() == 0
    rows = json.loads(out.read_text())["rows"]
    assert [row["arch"] for row in rows] == ["sm_80", "sm_90a"]
    for row in rows:
        assert row["builds"] == 2
        assert 0 < row["proposed"] <= 1
        assert 0 < row["median_cpu_ms"] <= row["mean_cpu_ms"] * 20
        assert row["kernels_per_s"] > 0
        assert (row["feasible"] == 1) == (row["failures"] == {})
