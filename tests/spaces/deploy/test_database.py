"""Databases that stock TVM applies."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, run_once
from spaces.codegen.prepack import pack_weights
from spaces.deploy.apply import apply_best
from spaces.deploy.database import RECORDS, WORKLOADS, export_database
from spaces.design_space.trace_space import TraceSpace
from spaces.frontends.inputs import make_inputs
from spaces.frontends.model import load_model
from spaces.ir import tvm_compat
from spaces.ir.schedules import InvalidCandidate
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.targets.target import parse_target
from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec
from tuner.task import Task

pytestmark = pytest.mark.tvm

EXAMPLES = Path(__file__).parents[3] / "examples"
LLVM = '{"kind":"llvm","num-cores":2}'


def sampled(task: Task) -> Candidate:
    """The first valid candidate of the search's own space, post-processed when realised."""
    space = TraceSpace(task)
    for seed in range(50):
        try:
            return space.realize_draft(Draft(task.key, seed, seed)).candidate
        except InvalidCandidate:
            continue
    raise AssertionError("no valid candidate in 50")


def stock_applied(directory: Path, lowered: Any) -> Any:
    from tvm import relax

    with parse_target(LLVM):
        return relax.transform.MetaScheduleApplyDatabase(str(directory))(lowered)


def programs(module: Any) -> list[Any]:
    """What runs: annotations of packing, which a database keeps as 1 for true, are gone, and so is
    where each came from."""
    packed = tvm_compat.prim_funcs(pack_weights(module))
    return [program.without_attr("tuner.origin") for _, program in packed]


@pytest.mark.parametrize("source", ["dense.py:dense", "gemm.py:gemm"])
def test_stock_tvm_applies_an_exported_database(tmp_path: Path, source: str) -> None:
    from tvm_ffi import structural_equal

    model = load_model(ModelSpec(f"{EXAMPLES}/{source}"))
    lowered = lower(model.module, LLVM)
    (task,) = extract(lowered, LLVM)
    best = sampled(task)
    export_database(tmp_path / "db", [(task, best, [0.002, 0.001])], lowered=lowered)
    stock = stock_applied(tmp_path / "db", lowered)
    ours = apply_best({task.key: best}, LLVM)(lowered)
    assert tvm_compat.attribute(stock[task.name], tvm_compat.IS_SCHEDULED)
    assert structural_equal(programs(stock), programs(ours))
    assert not structural_equal(stock[task.name], lowered[task.name])
    inputs = make_inputs(model.inputs)
    expected = run_once(compile_module(lowered, LLVM), inputs)
    for got, want in zip(run_once(compile_module(stock, LLVM), inputs), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_the_fastest_of_several_schedules_is_applied(tmp_path: Path) -> None:
    from tvm_ffi import structural_equal

    lowered = lower(load_model(ModelSpec(f"{EXAMPLES}/dense.py:dense")).module, LLVM)
    (task,) = extract(lowered, LLVM)
    slow, fast = Candidate(CandidateKind.TRACE, "[[],[]]", "default"), sampled(task)
    export_database(tmp_path, [(task, slow, [2.0]), (task, fast, [1.0])])
    ours = apply_best({task.key: fast}, LLVM)(lowered)
    assert structural_equal(programs(stock_applied(tmp_path, lowered)), programs(ours))


def test_exporting_again_replaces_what_was_there(tmp_path: Path) -> None:
    lowered = lower(load_model(ModelSpec(f"{EXAMPLES}/dense.py:dense")).module, LLVM)
    (task,) = extract(lowered, LLVM)
    entry = (task, Candidate(CandidateKind.TRACE, "[[],[]]", "default"), [1.0])
    for _ in range(2):
        export_database(tmp_path, [entry])
    for name in (WORKLOADS, RECORDS):
        assert len((tmp_path / name).read_text().splitlines()) == 1
    record = json.loads((tmp_path / RECORDS).read_text())
    assert record[1][1] == [1.0]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([WORKLOADS, RECORDS])


def test_a_full_disk_is_refused_and_the_old_database_stays(tmp_path: Path) -> None:
    # TVM does not look whether its writes succeed; a limit on sizes fails them as a full disk does.
    lowered = lower(load_model(ModelSpec(f"{EXAMPLES}/dense.py:dense")).module, LLVM)
    (task,) = extract(lowered, LLVM)
    entry = (task, Candidate(CandidateKind.TRACE, "[[],[]]", "default"), [1.0])
    export_database(tmp_path, [entry])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
    try:
        with pytest.raises(TunerError, match="free some space"):
            export_database(tmp_path, [entry])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TunerError, match="cannot write the database"):
        export_database(tmp_path / "file", [])
