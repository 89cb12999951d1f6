"""The figure of what a sample on the emulated device costs can be made again."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import emulation_cost


@pytest.mark.tvm
@pytest.mark.long
def test_each_kind_of_product_has_its_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores, out = os.sched_getaffinity(0), tmp_path / "emulation.json"
    monkeypatch.setattr(sys, "argv", ["cost", "--samples", "1", "--out", str(out)])
    try:
        assert emulation_cost.main() == 0
    finally:
        os.sched_setaffinity(0, cores)
    found = json.loads(out.read_text())
    for kind in ("float32", "float16", "wgmma"):
        assert found[kind]["samples"] == 1
        assert found[kind]["run_s"]["most"] > 0
