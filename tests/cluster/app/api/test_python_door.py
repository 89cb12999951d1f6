"""`tuner.tune` with a program from memory, and what follows on its result: real TVM and Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.gemm import gemm
from tests.cluster.app.passes.made_run import best_estimate, made_run
from tuner.errors import TunerError
from tuner.runs.folder import read_run
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.slow]

FIRST = """
import json, sys
import tuner
from examples.gemm import gemm

run, out = sys.argv[1:]
result = tuner.tune(gemm(96, 64, 80), target="llvm", trials=8, time_budget="4m", run=run)
print(json.dumps([result.ended, str(result.run), result.best, result.database(out)]))
"""
TARGET = '{"kind":"llvm","num-cores":1}'
TEXT = """
from tvm import IRModule
from examples.gemm import gemm

def network():
    return IRModule({"gemm": gemm(96, 64, 80)})
"""
GOING_ON = """
import json, sys
import tuner

result = tuner.tune(run=sys.argv[1], target="llvm", trials=12)
print(json.dumps([result.ended, result.snapshot.trials, str(result.library(sys.argv[2]))]))
"""


def ran(program: str, *arguments: Path) -> list[Any]:
    """What a user's program prints, in a process of its own, as Ray wants it."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.fixture(scope="module")
def memory_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 8 trials of a program from memory."""
    folder = tmp_path_factory.mktemp("runs") / "gemm"
    ended, where, best, left_out = ran(FIRST, folder, folder.parent / "database")
    assert (ended, where, left_out) == ("trials", str(folder), [])
    assert [row["name"] for row in best] == ["gemm"]
    assert best[0]["trace"] is not None
    assert best[0]["latency_ms"] > 0
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of that program in which a template's best estimate has won."""
    return made_run(tmp_path_factory.mktemp("door"), TEXT, TARGET, best_estimate)


def a_result(run: Path) -> Any:
    from cluster.app.driver.tune_result import TuneResult

    return TuneResult(run, Snapshot(phase=Phase.DONE), "trials", (), "")


@pytest.mark.long
def test_the_run_keeps_the_program_and_its_name(memory_run: Path) -> None:
    assert read_run(memory_run)[1].model == "gemm"
    assert (memory_run.parent / "database" / "database_workload.json").stat().st_size > 0


@pytest.mark.long
def test_another_process_goes_on_without_the_program(memory_run: Path, tmp_path: Path) -> None:
    import tvm

    out = tmp_path / "gemm.so"
    assert ran(GOING_ON, memory_run, out) == ["trials", 12, str(out)]
    rng = np.random.default_rng(0)
    a, b = rng.random((96, 80), dtype="float32"), rng.random((80, 64), dtype="float32")
    c = tvm.runtime.tensor(np.empty((96, 64), "float32"))
    library = tvm.runtime.load_module(str(out))
    library["gemm"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-4)


def test_the_best_is_put_into_the_program_and_into_others_that_have_it(run: Path) -> None:
    from tvm.ir import IRModule

    program = gemm(96, 64, 80)
    both = IRModule({"gemm": program, "other": gemm(8, 8, 8).with_attr("global_symbol", "other")})
    for module in (None, program, IRModule({"gemm": program}), both):
        applied = a_result(run).apply(module)
        assert applied["gemm"].attrs["tirx.is_scheduled"]
    assert "tirx.is_scheduled" not in applied["other"].attrs
    assert "tirx.is_scheduled" not in program.attrs


def test_a_module_of_other_programs_is_refused(run: Path) -> None:
    with pytest.raises(TunerError, match="has no schedule for any program of this module"):
        a_result(run).apply(gemm(8, 8, 8))


def test_results_of_several_devices_are_taken_one_by_one(run: Path) -> None:
    from dataclasses import replace

    part = a_result(run)
    both = replace(part, run=run.parent, parts=(part, part))
    for what in (lambda: both.best, both.apply, lambda: both.library("x.so")):
        with pytest.raises(TunerError, match=r"take one of result\.parts"):
            what()
    assert both.parts[0].best[0]["name"] == "gemm"
