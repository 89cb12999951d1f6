"""TVM imported without PyTorch where that is installed, and what still works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lean import LEAN
from tests.needed import needed_package

pytestmark = pytest.mark.tvm

ROOT = Path(__file__).resolve().parents[3]
EXCHANGED = f"""{LEAN}
import sys
import tvm
assert "torch" not in sys.modules
import torch
import tvm.runtime.disco
assert (tvm.runtime.from_dlpack(torch.arange(3)).numpy() == [0, 1, 2]).all()
"""
KNOWN = f"""
import torch
{LEAN}
import tvm
from tvm_ffi import _convert
assert _convert.torch is torch
"""
OURS = """
import sys
from actors.build_child import BuildChild
from spaces.design_space.evaluate import make_evaluator
BuildChild(), make_evaluator()
assert "tvm" in sys.modules and "torch" not in sys.modules
assert "tvm.runtime.disco" not in sys.modules
"""
COMMAND = """
import sys
sys.argv = ["tuner", "tasks", "examples/gemm.py:gemm", "--target", "llvm"]
try:
    from cluster.app.cli import main
    main()
except SystemExit as end:
    assert not end.code
assert "tvm" in sys.modules and "torch" not in sys.modules
"""


@pytest.mark.parametrize(
    "program",
    [EXCHANGED, KNOWN, OURS, COMMAND],
    ids=["tensors are exchanged", "who had it keeps it", "workers", "a command"],
)
def test_pytorch_is_imported_by_who_needs_it(program: str) -> None:
    needed_package("torch")
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
