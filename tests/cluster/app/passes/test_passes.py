"""Passes in several orders, on a network with one function of each origin."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from benchmarks.proposals import TARGET as ON_GPU
from spaces.ir import tvm_compat
from spaces.targets.target import resolve_target
from tests.cluster.app.passes.made_run import best_estimate, made_run
from tuner.errors import TunerError, UsageError

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[4]
TARGET = '{"kind":"llvm","num-cores":1}'
TEXT = """
from tvm import IRModule
from tests.cluster.app.passes.test_passes import product

def network():
    return IRModule({"main": product("main", 48, 64, 32)})
"""


def product(name: str, m: int, n: int, k: int, then: str = "") -> Any:
    """A matrix product, with another operator fused to it."""
    from tvm import te, topi

    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    c = topi.nn.matmul(a, b)
    out = {"": lambda: c, "relu": lambda: topi.nn.relu(c), "tanh": lambda: topi.tanh(c)}[then]()
    return te.create_prim_func([a, b, out]).with_attr("global_symbol", name)


def gemv(name: str, n: int, k: int) -> Any:
    from tvm import te

    x, w = te.placeholder((1, k), name="x"), te.placeholder((n, k), name="w")
    r = te.reduce_axis((0, k), name="r")
    y = te.compute((1, n), lambda i, j: te.sum(x[i, r] * w[j, r], axis=r), name="y")
    return te.create_prim_func([x, w, y]).with_attr("global_symbol", name)


def doubled(name: str, by_hand: bool = False, wrong: bool = False) -> Any:
    from tvm import te
    from tvm.s_tir import Schedule

    x = te.placeholder((64, 64), name="x")
    factor = 3.0 if wrong else 2.0
    y = te.compute((64, 64), lambda i, j: x[i, j] * np.float32(factor), name="y")
    function = te.create_prim_func([x, y]).with_attr("global_symbol", name)
    if not by_hand:
        return function
    schedule = Schedule(function)
    _, j = schedule.get_loops(schedule.get_sblock("y"))
    schedule.vectorize(schedule.split(j, [None, 16])[1])
    return schedule.mod["main"].with_attr("global_symbol", name)


@pytest.fixture(scope="module")
def module() -> Any:
    import tvm

    return tvm.IRModule(
        {
            "tuned": product("tuned", 48, 64, 32),
            "alike": product("alike", 48, 64, 32, then="tanh"),
            "pinned": doubled("pinned"),
            "by_rule": gemv("by_rule", 256, 128),
            "alone": product("alone", 7, 9, 5),
        }
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the program of one function, which the others do not have."""
    target = resolve_target(TARGET)
    return made_run(tmp_path_factory.mktemp("passes"), TEXT, target, best_estimate)


@pytest.fixture(scope="module")
def stages(run: Path) -> dict[str, Any]:
    from tuner import passes

    return {
        "best": passes.ApplyBest(run, target=TARGET),
        "pinned": passes.Pinned([(doubled("any"), doubled("by_hand", by_hand=True))], TARGET),
        "defaults": passes.Defaults(TARGET),
    }


def right(module: Any) -> None:
    """Whether each function computes what it should."""
    import tvm

    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    built = tvm.compile(module, target=target, tir_pipeline=tuner.tir_pipeline(target))
    rng = np.random.default_rng(0)
    for name, function in module.functions.items():
        shapes = [tvm_compat.param_shape(param) for param in function.params]
        arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
        tensors = [tvm.runtime.tensor(array) for array in arrays]
        built[name.name_hint](*tensors)
        want = {
            "tuned": lambda a: a[0] @ a[1],
            "alone": lambda a: a[0] @ a[1],
            "alike": lambda a: np.tanh(a[0] @ a[1]),
            "pinned": lambda a: 2 * a[0],
            "by_rule": lambda a: a[0] @ a[1].T,
        }[name.name_hint](arrays)
        np.testing.assert_allclose(tensors[-1].numpy(), want, rtol=1e-3, atol=1e-3)


FIRST, *OTHERS = permutations(("best", "pinned", "defaults"))


@pytest.mark.parametrize(
    "order", [FIRST, *(pytest.param(o, marks=pytest.mark.long) for o in OTHERS)], ids="-".join
)
def test_each_function_gets_what_it_should_in_any_order(
    module: Any, stages: dict[str, Any], order: tuple[str, ...], run: Path
) -> None:
    from tvm.ir.transform import Sequential

    done = Sequential([stages[name] for name in order])(module)
    found = tuner.passes.origins(done)
    takes = {
        "best": {"tuned": "tuned", "alike": "anchor"},
        "pinned": {"pinned": "pinned"},
        "defaults": dict.fromkeys(("tuned", "alike", "pinned", "by_rule", "alone"), "default"),
    }
    expected: dict[str, str] = {}
    for name in order:  # what is scheduled already is left alone
        expected = {**takes[name], **expected}
    assert {name: origin.how for name, origin in found.items()} == expected
    if expected["tuned"] == "tuned":
        assert found["tuned"].source == str(run)
        assert found["tuned"].latency_s is not None
    right(done)
    untouched = tuner.passes.origins(module)
    assert {origin.how for origin in untouched.values()} == {"none"}


def test_what_is_alike_is_checked_and_timed(module: Any, stages: dict[str, Any]) -> None:
    found = tuner.passes.origins(stages["best"](module))
    assert "whose largest block is the same" in found["alike"].why
    assert found["alike"].latency_s is not None
    assert set(stages["best"].missed) == {"pinned", "by_rule", "alone"}


def test_without_anchors_only_the_very_program_is_scheduled(module: Any, run: Path) -> None:
    best = tuner.passes.ApplyBest(run, target=TARGET, anchor=False)
    found = tuner.passes.origins(best(module))
    assert {name for name, origin in found.items() if origin.how != "none"} == {"tuned"}


def test_a_database_is_a_source_as_a_run_is(module: Any, run: Path, tmp_path: Path) -> None:
    from cluster.app.driver.export import export_database

    export_database(run, tmp_path / "database")
    best = tuner.passes.ApplyBest(tmp_path / "database", target=TARGET)
    found = tuner.passes.origins(best(module))
    assert found["tuned"].how == "tuned"
    assert found["tuned"].source == str(tmp_path / "database")


def test_stock_databases_are_asked_in_the_order_given(module: Any, run: Path) -> None:
    from tvm.s_tir.meta_schedule.database import ScheduleFnDatabase

    def by_hand(schedule: Any) -> bool:
        blocks = [
            str(schedule.get(b).name_hint)
            for b in schedule.get_child_blocks(schedule.get_sblock("root"))
        ]
        if "T_matmul" not in "".join(blocks) or len(blocks) != 1:
            return False
        schedule.parallel(schedule.get_loops(schedule.get_sblock(blocks[0]))[0])
        return True

    best = tuner.passes.ApplyBest(run, ScheduleFnDatabase(by_hand), target=TARGET, anchor=False)
    found = tuner.passes.origins(best(module))
    assert found["tuned"].source == str(run)
    assert (found["alone"].how, found["alone"].source) == ("tuned", "a database")


def test_another_target_gets_none_of_it(module: Any, run: Path) -> None:
    best = tuner.passes.ApplyBest(run, target=ON_GPU)
    assert {o.how for o in tuner.passes.origins(best(module)).values()} == {"none"}
    assert len(best.missed) == 5


def test_a_wrong_pinned_kernel_is_refused_unless_it_is_trusted(module: Any) -> None:
    wrong = [(doubled("any"), doubled("odd", by_hand=True, wrong=True))]
    with pytest.raises(TunerError, match="the pinned kernel odd of pinned is not used: output"):
        tuner.passes.Pinned(wrong, TARGET)(module)
    trusted = tuner.passes.Pinned(wrong, TARGET, trusted=["odd"])(module)
    assert tuner.passes.origins(trusted)["pinned"].why.startswith(
        "trusted by name, of the program with the key "
    )


def test_tasks_are_chosen_by_name_operator_and_share(module: Any) -> None:
    extract = tuner.passes.Extract(TARGET)
    assert extract(module).same_as(module) or extract.tasks
    assert [task.name for task in extract.tasks][:2] == ["alike", "tuned"]
    named = tuner.passes.Extract(TARGET, only="a*")
    named(module)
    assert {task.name for task in named.tasks} == {"alike", "alone"}
    large = tuner.passes.Extract(TARGET, least_share=0.3)
    large(module)
    assert {task.name for task in large.tasks} == {"alike", "tuned"}
    of_rule = tuner.passes.Extract(TARGET, operators=["by_rule", "pinned"])
    of_rule(module)
    assert {task.name for task in of_rule.tasks} == {"by_rule", "pinned"}


@pytest.mark.ray
@pytest.mark.long
def test_what_the_page_shows_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "passes.md").read_text()
    shown = "".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    done = subprocess.run(
        [sys.executable, "-c", shown],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"^\w+ tuned runs/gemm ", done.stdout, re.MULTILINE)


def test_a_pass_of_no_source_is_refused() -> None:
    with pytest.raises(UsageError, match="name a run"):
        tuner.passes.ApplyBest(target=TARGET)
    with pytest.raises(TunerError, match="there is no run"):
        tuner.passes.ApplyBest("nowhere", target=TARGET)
