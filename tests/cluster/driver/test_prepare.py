"""What a search is told: the request, as far as it is of use to another process."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from cluster.driver.prepare import prepare
from spaces.frontends.model import load_model
from tuner.options import ModelSpec, TuneOptions
from tuner.run_location import RunLocation
from tuner.runs.folder import read_run

pytestmark = pytest.mark.tvm

EXAMPLES = Path(__file__).parents[3] / "examples"
GEMM = ModelSpec(f"{EXAMPLES / 'gemm.py'}:gemm", args=(("m", 96), ("n", 64), ("k", 80)))


def test_a_model_from_memory_stays_where_it_is(tmp_path: Path) -> None:
    """It is large, and TVM's objects cannot be pickled; the run has a copy."""
    options = TuneOptions(ModelSpec("mine", program=load_model(GEMM)), target="llvm", trials=8)
    job = prepare(options, RunLocation.of(tmp_path / "run"), started_s=0.0)
    assert job.options.model == ModelSpec("mine")
    assert job.options.model.program is None
    assert options.model.program is not None
    assert pickle.loads(pickle.dumps(job)) == job
    assert job.trials == 8
    assert read_run(job.run)[0].model_dir.is_dir()


def test_the_target_is_written_out(tmp_path: Path) -> None:
    job = prepare(TuneOptions(GEMM, target="llvm"), RunLocation.of(tmp_path / "run"), started_s=0.0)
    assert job.options.target == job.tasks[0].target == read_run(job.run)[1].target != "llvm"
