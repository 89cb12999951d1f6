"""Programs tuned by stock's `tune_tir` and `tune_relax` or by ours: both leave what both apply."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from cluster.app.driver.export import export_database
from examples.dense import dense
from spaces.deploy.provenance import origins
from spaces.ir import tvm_compat
from spaces.lowering.extract_tasks import is_scheduled
from tests.compatibility.database_programs import (
    TARGET,
    by_ours,
    by_rules,
    by_stock,
    by_template,
    meta_schedule,
    module_of,
    program,
    right,
    run_of,
    same,
    stock_target,
)
from tuner.candidate import Candidate
from tuner.task import Task

pytestmark = [pytest.mark.tvm]

TRIALS = 4
STOCK = "tvm.s_tir.meta_schedule"
GPU = json.dumps(
    {
        "kind": "cuda",
        "arch": "sm_60",
        "max_num_threads": 1024,
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
        "thread_warp_size": 32,
    }
)
"""One without tensor cores, whose intrinsics it takes long to read."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Stock logs what it does, through handlers that it would find again in the next test."""
    logging.disable(logging.INFO)
    yield
    logging.disable(logging.NOTSET)
    for name in [name for name in logging.root.manager.loggerDict if name.startswith(STOCK)]:
        logger = logging.getLogger(name)
        logger.propagate = True
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            handler.close()


def options(**others: Any) -> dict[str, Any]:
    """Options of stock's with which nothing is built or run: each schedule gets a random time."""
    stock = meta_schedule()
    from tvm.s_tir.meta_schedule.testing.dummy_object import DummyBuilder, DummyRunner

    return {
        "max_trials_global": TRIALS,
        "num_trials_per_iter": TRIALS,
        "builder": DummyBuilder(),
        "runner": DummyRunner(),
        "cost_model": "random",
        "strategy": "replay-trace",
        "measure_callbacks": [stock.measure_callback.AddToDatabase()],
        "seed": 0,
        **others,
    }


def tuned_by_stock(function: Any, folder: Path, target: str = TARGET, **others: Any) -> Any:
    """The database of a search of stock's, which is in a folder as well."""
    tune = meta_schedule().tir_integration.tune_tir
    return tune(function, stock_target(target), str(folder), **options(**others))


def best_of_stock(database: Any, function: Any, target: str = TARGET) -> Any:
    """The program that stock makes with a database."""
    compiled = meta_schedule().tir_integration.compile_tir
    return compiled(database, function, stock_target(target)).mod["main"]


@pytest.mark.parametrize("name", ["plain", "biased_relu"])
def test_the_best_that_stock_found_is_applied_by_both(tmp_path: Path, name: str) -> None:
    database = tuned_by_stock(program(name), tmp_path)
    assert len(database) == TRIALS
    stock = best_of_stock(database, program(name))
    for source in (tmp_path, database):
        ours = by_ours(module_of(name), source)
        assert origins(ours)[name].how == "tuned"
        assert same(ours[name], stock)
        assert not same(ours[name], program(name))
        right(ours)


@pytest.mark.parametrize("faster", [by_template, by_rules])
def test_the_best_that_ours_found_is_applied_by_both(tmp_path: Path, faster: Any) -> None:
    run = run_of(tmp_path, "plain", faster=faster)
    export_database(run, tmp_path / "database")
    database = meta_schedule().database.JSONDatabase(work_dir=str(tmp_path / "database"))
    ours = by_ours(module_of("plain"), run)
    assert same(ours["plain"], best_of_stock(database, program("plain")))
    right(ours)


def test_a_gpu_s_best_that_stock_found_is_applied_by_both(tmp_path: Path) -> None:
    function = program("plain", m=64)
    database = tuned_by_stock(function, tmp_path, GPU)
    best: Any = tuner.passes.ApplyBest(tmp_path, target=GPU)
    ours = best(module_with(function))["plain"]
    assert same(ours, best_of_stock(database, function, GPU))
    assert "threadIdx.x" in ours.script()


def module_with(function: Any) -> Any:
    from tvm import IRModule

    return IRModule({"plain": function})


def doubled_and_shifted() -> Any:
    from tvm import te

    x = te.placeholder((32, 32), name="x")
    doubled = te.compute((32, 32), lambda i, j: x[i, j] * 2.0, name="doubled")
    shifted = te.compute((32, 32), lambda i, j: doubled[i, j] + 3.0, name="shifted")
    return te.create_prim_func([x, shifted]).with_attr(tvm_compat.GLOBAL_SYMBOL, "plain")


def inlining() -> Any:
    """A rule in Python that inlines whatever block it gets."""
    from tvm.ir.utils import derived_object

    base: Any = meta_schedule().schedule_rule.PyScheduleRule

    class Inline(base):  # type: ignore[misc]
        def _initialize_with_tune_context(self, context: Any) -> None:
            pass

        def apply(self, sch: Any, block: Any) -> list[Any]:
            made = sch.copy()
            made.compute_inline(block)
            return [made]

        def clone(self) -> Any:
            return inlining()

    return derived_object(Inline)()


def test_what_a_rule_of_a_user_of_stock_made_is_applied_by_both(tmp_path: Path) -> None:
    function = doubled_and_shifted()
    space = meta_schedule().space_generator.PostOrderApply(
        f_block_filter=lambda block: block.name_hint == "doubled",
        sch_rules=[inlining()],
        postprocs=[],
        mutator_probs={},
    )
    database = tuned_by_stock(function, tmp_path, space=space)
    ours = by_ours(module_with(function), tmp_path)["plain"]
    assert same(ours, best_of_stock(database, function))
    assert [block.name_hint for block in tvm_compat.sblocks(ours)].count("doubled") == 0


@pytest.fixture(scope="module")
def lowered() -> Any:
    return tuner.lower(dense(features=64), TARGET)


def outputs(executable: Any) -> np.ndarray:
    import tvm
    from tvm import relax

    machine = relax.VirtualMachine(executable, tvm.cpu())
    x = np.random.default_rng(3).normal(size=(16, 64)).astype(np.float32)
    return np.asarray(machine["main"](tvm.runtime.tensor(x)).numpy())


def test_a_network_that_stock_tuned_is_scheduled_alike_by_both(
    tmp_path: Path, lowered: Any
) -> None:
    tune = meta_schedule().relax_integration.tune_relax
    database = tune(lowered, {}, stock_target(), str(tmp_path), **options())
    assert len(database) == TRIALS
    ours, stock = by_ours(lowered, tmp_path), by_stock(lowered, tmp_path)
    (name,) = (name for name, _ in tvm_compat.prim_funcs(lowered))
    assert is_scheduled(stock[name])
    assert same(ours[name], stock[name])


def test_stock_compiles_a_network_that_ours_scheduled(tmp_path: Path, lowered: Any) -> None:
    """It is scheduled first: stock's `compile_relax` fuses once more, and marks programs with
    patterns by which a database does not know them."""
    tune = meta_schedule().relax_integration.tune_relax
    database = tune(lowered, {}, stock_target(), str(tmp_path), **options())
    compiled = meta_schedule().relax_integration.compile_relax
    scheduled = by_ours(lowered, database)
    got = outputs(compiled(database, scheduled, stock_target(), None))
    want = outputs(compiled(database, dense(features=64), stock_target(), None))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_what_no_database_has_gets_a_default_on_a_gpu_from_both() -> None:
    from tvm.ir.transform import Sequential
    from tvm.relax.transform import MetaScheduleApplyDatabase
    from tvm.s_tir.transform import DefaultGPUSchedule

    empty, module = meta_schedule().database.MemoryDatabase(), module_of("plain")
    with stock_target(GPU), empty:
        stock = Sequential([MetaScheduleApplyDatabase(), DefaultGPUSchedule()])(module)
    best = tuner.passes.ApplyBest(empty, target=GPU)
    ours = Sequential([best, tuner.passes.Defaults(GPU)])(module)
    assert origins(ours)["plain"].how == "default"
    for done in (stock, ours):
        assert is_scheduled(done["plain"])
        assert "threadIdx.x" in done["plain"].script()


def test_without_a_trial_neither_has_a_schedule(tmp_path: Path) -> None:
    def nobody(_task: Task) -> Candidate | None:
        return None

    database = tuned_by_stock(program("plain"), tmp_path, max_trials_global=0)
    assert len(database) == 0
    assert origins(by_ours(module_of("plain"), database))["plain"].how == "none"
    export_database(run_of(tmp_path, "plain", faster=nobody), tmp_path / "database")
    assert origins(by_ours(module_of("plain"), tmp_path / "database"))["plain"].how == "none"
