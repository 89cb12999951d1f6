"""Archives of PyTorch's export for quantization."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.coverage.quantized import FILES
from benchmarks.coverage.quantized_archives import KINDS
from tests.needed import needed_package

needed_package("torch")
pytestmark = pytest.mark.tvm


@pytest.mark.parametrize(
    "kind",
    [
        KINDS[0],
        KINDS[2],
        pytest.param(KINDS[1], marks=pytest.mark.long),
        pytest.param("rows of tokens, weights of 4 bits in groups", marks=pytest.mark.long),
    ],
)
def test_what_is_quantized_is_read_where_nobody_imported_its_operators(
    kind: str, tmp_path: Path
) -> None:
    """PyTorch registers them only when asked to; a user has no reason to ask."""
    FILES[f"archive, {kind}"](tmp_path)
    command = [sys.executable, "-m", "benchmarks.coverage.check_child", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    row = json.loads(done.stdout)
    assert row["error"] < 1e-5, row
    assert not row["wrong"]
