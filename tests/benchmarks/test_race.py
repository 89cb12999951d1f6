"""Programs of one task against each other, for real."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

from benchmarks import workloads
from benchmarks.copies import WAYS, Copy, footprint_bytes
from benchmarks.race import MetaSchedules, NumpyMatmul, Ours, Racer, run_race
from benchmarks.suites import Workload, defaults, gemm_shape, workload
from spaces.check.draws import arguments
from spaces.design_space.default_schedule import default_candidate
from spaces.lowering.extract_tasks import task_of
from tuner.candidate import Candidate
from tuner.task import Task

pytestmark = pytest.mark.tvm

TARGET = '{"kind":"llvm","num-cores":1}'
SMALL = {
    "dense": {"m": 4, "n": 6, "k": 8, "constant": 1},
    "gemm": {"m": 4, "n": 6, "k": 8},
    "gemm_int8": {"m": 4, "n": 6, "k": 8, "constant": 1},
    "batch_gemm": {"b": 2, "m": 4, "n": 6, "k": 8, "transpose_a": 1, "transpose_b": 1},
    "grouped": {"c": 4, "h": 5, "w": 5, "f": 4, "groups": 2},
    "operator": {"number": 5, "case": 0},
    "softmax": {"rows": 4, "cols": 6},
    "layer_norm": {"rows": 4, "cols": 6},
    "reduce_sum": {"rows": 4, "cols": 6},
    "reduce_columns": {"rows": 4, "cols": 6},
    "elementwise": {"rows": 4, "cols": 6},
}
CONVOLUTION = {"c": 4, "h": 5, "w": 5}
NAMES = sorted(n for n, f in vars(workloads).items() if inspect.isfunction(f) and n[0] != "_")


def task(chosen: Workload) -> Task:
    return task_of(chosen.prim_func(), TARGET, name=chosen.name)


@pytest.mark.parametrize("name", NAMES)
def test_every_program_is_a_task_with_one_output_behind_its_inputs(name: str) -> None:
    chosen = workload(name, SMALL.get(name, CONVOLUTION).items())
    args = arguments(chosen.prim_func())
    assert [a.written for a in args] == [False] * (len(args) - 1) + [True]
    assert default_candidate(task(chosen)).key
    if "constant" in defaults(name):
        marked = workload(name, [*chosen.args, ("constant", 1)]).prim_func()
        assert list(marked.attrs["layout_free_buffers"]) == [1]


@pytest.mark.parametrize("shape", ["5,7,9", "2,5,7,9", "2,5,7,9,ta", "2,5,7,9,tb"])
def test_numpy_computes_the_same_product_and_both_take_part(shape: str) -> None:
    chosen = gemm_shape(shape)
    args, found = dict(chosen.args), task(chosen)
    blas = NumpyMatmul(bool(args.get("transpose_a")), bool(args.get("transpose_b")))
    ours = Ours(found, default_candidate(found))
    samples, failed = Racer().race(found, (ours, blas), 2, None)
    assert failed == {}
    assert {name: len(s) for name, s in samples.items()} == {"ours": 2, "blas": 2}


def test_a_contestant_with_a_wrong_output_does_not_take_part() -> None:
    found = task(gemm_shape("6,6,6"))
    samples, failed = Racer().race(found, (NumpyMatmul(transpose_b=True),), 2, None)
    assert samples == {}
    assert failed["blas"].startswith("wrong output: largest error")


def test_one_that_cannot_start_leaves_the_others_alone(tmp_path: Path) -> None:
    found = task(gemm_shape("6,6,6"))
    broken = Ours(found, Candidate(default_candidate(found).kind, "[[],[]", "x"))
    others = (MetaSchedules(tmp_path, TARGET), NumpyMatmul())
    samples, failed = Racer().race(found, (broken, *others), 1, None)
    assert list(samples) == ["blas"]
    assert set(failed) == {"ours", "metaschedule"}
    assert failed["metaschedule"] == "LookupError: it left no database"


def test_copies_move_as_many_bytes_as_the_program_at_least() -> None:
    chosen = workload("softmax", [("rows", 8), ("cols", 64)])
    found = task(chosen)
    assert footprint_bytes(arguments(chosen.prim_func())) == 2 * 8 * 64 * 4
    copies = [Copy(way, 2, TARGET, size) for way in WAYS for size in (0, 1 << 16)]
    samples, failed = Racer().race(found, copies, 1, None)
    assert failed == {}
    assert set(samples) == {*WAYS, *(f"large {way}" for way in WAYS)}


@pytest.mark.long
def test_a_race_runs_in_a_process_of_its_own_and_a_deadline_ends_it(tmp_path: Path) -> None:
    found = task(gemm_shape("6,6,6"))
    settings = {"cores": 1, "rounds": 1, "log": tmp_path / "race.log"}
    good = run_race(found, (NumpyMatmul(),), limit_s=60.0, **settings)  # type: ignore[arg-type]
    assert good.failure == ""
    assert np.isfinite(good.samples_s["blas"]).all()
    late = run_race(found, (NumpyMatmul(),), limit_s=0.0, **settings)  # type: ignore[arg-type]
    assert "no answer within" in late.failure
    assert late.samples_s == {}
