"""`tuner.tune` with a symbolic program from memory, and the command that goes on with it: real TVM
and Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.long]

PROGRAM = """
import json, sys
import numpy as np
import tuner
from tvm import te

run, out = sys.argv[1:]
T = tuner.ShapeVar("T")
a, b = te.placeholder((4 * T, 24), name="a"), te.placeholder((24, 32), name="b")
k = te.reduce_axis((0, 24), name="k")
c = te.compute((4 * T, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
result = tuner.tune([a, b, c], dims={"T": [1, 3, 9]}, weights={9: 2, 1: 1, 3: 1}, run=run,
                    inputs={"b": np.eye(24, 32, dtype="float32")}, target="llvm", trials=8,
                    time_budget="4m")
kernels = result.best[0]["kernel_set"]["kernels"]
print(json.dumps([result.ended, result.snapshot.trials, len(kernels), str(result.library(out))]))
"""


def ran(*command: str) -> Any:
    """What a process prints, as JSON."""
    line = [sys.executable, *command]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_symbolic_program_is_tuned_exported_and_gone_on_with(tmp_path: Path) -> None:
    import tvm

    run, out = tmp_path / "run", tmp_path / "product.so"
    ended, trials, kernels, library = ran("-c", PROGRAM, str(run), str(out))
    assert (ended, trials, library) == ("trials", 8, str(out))
    assert 1 <= kernels <= 4
    assert (np.load(run / "model" / "input-0.npy") == np.eye(24, 32)).all()
    product = tvm.runtime.load_module(str(out))["main"]
    rng = np.random.default_rng(0)
    b = rng.random((24, 32), dtype="float32")
    for rows in (1, 4, 13, 36, 50):
        a, c = rng.random((rows, 24), dtype="float32"), np.empty((rows, 32), "float32")
        held = [tvm.runtime.tensor(array) for array in (a, b, c)]
        product(*held)
        np.testing.assert_allclose(held[-1].numpy(), a @ b, rtol=1e-4)
    again = ran("-m", "tuner", "tune", "--run", str(run), "--trials", "10", "--json")
    assert (again["ended"], again["trials"]) == ("trials", 10)
