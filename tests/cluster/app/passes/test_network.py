"""All passes on one network in several orders, with those of TVM's before and after them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from spaces.ir import tvm_compat
from tests.cluster.app.passes import network as net
from tests.cluster.app.passes.large_products import LargeProducts
from tests.cluster.app.passes.made_run import best_estimate, made_run

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

TARGET = '{"kind":"llvm","num-cores":1}'
LAST = "matmul"  # the last product, which a run has tuned
TEXT = """
from tvm import IRModule
from tests.cluster.app.passes.test_network import LAST, lowered

def network():
    return IRModule({"main": lowered()[LAST].with_attr("global_symbol", "main")})
"""


def lowered() -> Any:
    return tuner.lower(net.network(), TARGET)


def by_hand(program: Any) -> Any:
    """A schedule of the softmax with a factor, as one writes it."""
    from tvm.s_tir import Schedule

    schedule = Schedule(program)
    for name in ("T_softmax_exp", "T_softmax_norm"):
        _, j = schedule.get_loops(schedule.get_sblock(name))
        schedule.vectorize(schedule.split(j, [None, 16])[1])
    return schedule.mod["main"].with_attr("global_symbol", "softmax_by_hand")


@pytest.fixture(scope="module")
def module() -> Any:
    return lowered()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_run(tmp_path_factory.mktemp("network"), TEXT, TARGET, best_estimate)


@pytest.fixture(scope="module")
def stages(module: Any, run: Path) -> dict[str, Any]:
    passes, program = tuner.passes, module["fused_softmax_multiply"]
    blas = passes.LibraryDispatch(LargeProducts, target=TARGET, against=[net.left_alone()])
    return {
        "best": passes.ApplyBest(run, target=TARGET),
        "blas": blas,
        "pinned": passes.Pinned([(program, by_hand(program))], TARGET),
        "defaults": passes.Defaults(TARGET),
    }


FUNCTIONS = {
    "matmul": "tuned",
    "fused_matmul_tir_tanh": "anchor",
    "matmul1": "library",
    "matmul2": "library",
    "fused_softmax_multiply": "pinned",
    "softmax1": "default",
}
TAKES = {
    "best": ("tuned", "anchor"),
    "blas": ("library",),
    "pinned": ("pinned",),
    "defaults": tuple(set(FUNCTIONS.values())),
}
ORDERS = [
    ("pinned", "best", "blas", "defaults"),
    *(
        pytest.param(order, marks=pytest.mark.long)
        for order in (
            ("blas", "pinned", "best", "defaults"),
            ("best", "defaults", "blas", "pinned"),
            ("pinned", "defaults", "best", "blas"),
        )
    ),
]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_each_function_is_scheduled_by_the_first_pass_that_has_something_for_it(
    module: Any, stages: dict[str, Any], order: tuple[str, ...]
) -> None:
    from tvm.ir.transform import Sequential

    done = Sequential([stages[name] for name in order])(module)
    found = tuner.passes.origins(done)
    expected = {}
    for function, how in FUNCTIONS.items():
        first = next(name for name in order if how in TAKES[name])
        expected[function] = "default" if first == "defaults" else how
    assert {name: origin.how for name, origin in found.items()} == expected
    assert all(origin.why and origin.source for origin in found.values())
    assert {origin.how for origin in tuner.passes.origins(module).values()} == {"none"}
    tuner.passes.register(LargeProducts)
    packed = tuner.passes.PackWeights()(done)
    for ready in (done, packed):
        np.testing.assert_allclose(net.run(ready, TARGET), net.wanted(), rtol=1e-3, atol=1e-5)


@pytest.mark.long
def test_what_defaults_leave_slow_is_all_that_is_tuned(module: Any, tmp_path: Path) -> None:
    from spaces.lowering.extract_tasks import extract
    from spaces.lowering.lower import lower

    fast = tuner.passes.Defaults(TARGET, within=1e6)
    assert {o.how for o in tuner.passes.origins(fast(module)).values()} == {"default"}
    assert fast.missed == {}
    some = tuner.passes.Defaults(TARGET, within=1.0)
    done = some(module)
    found = tuner.passes.origins(done)
    left = {name for name, origin in found.items() if origin.how == "none"}
    assert left == set(some.missed)
    assert left, "a softmax takes more than a copy of its bytes"
    for name, origin in found.items():
        said = some.missed.get(name, origin.why)
        assert "times what its operations take" in said or "times what its bytes take" in said
    again = lower(done, TARGET)
    assert again.same_as(done), "it was lowered before"
    assert {task.name for task in extract(again, TARGET)} <= left


def softmax_codegen(functions: Any, _options: Any, _constants: Any) -> list[Any]:
    """A code generator as a vendor brings it: it wants operators, and registers functions."""
    import tvm_ffi

    for function in functions:
        assert "R.nn.softmax" in str(function), "what it is to compile was lowered"

        def softmax(x: Any, out: Any) -> None:
            out.copyfrom(net.softmax(x.numpy()))

        symbol = str(function.attrs["global_symbol"])
        tvm_ffi.register_global_func(symbol, softmax, override=True)
    return []


def partitioned(module: Any) -> Any:
    from tvm.relax.backend.contrib import example_npu  # noqa: F401 - it registers its patterns
    from tvm.relax.backend.pattern_registry import get_patterns_with_prefix
    from tvm.relax.transform import FuseOpsByPattern

    patterns = get_patterns_with_prefix("example_npu.softmax")
    return FuseOpsByPattern(patterns, bind_constants=False, annotate_codegen=True)(module)


def generated(module: Any) -> Any:
    import tvm_ffi
    from tvm.relax.transform import RunCodegen

    tvm_ffi.register_global_func("relax.ext.example_npu", softmax_codegen, override=True)
    return RunCodegen()(module)


def lowered_by_us(module: Any) -> Any:
    return tuner.lower(module, TARGET)


def defaults(module: Any) -> Any:
    return tuner.passes.Defaults(TARGET)(module)


def sorts(module: Any) -> Any:
    """TVM's own dispatch of sorts to functions of its runtime."""
    import json

    from tvm.relax.backend import DispatchSortScan
    from tvm.target import Target

    with Target(json.loads(TARGET)):
        return DispatchSortScan()(module)


@pytest.mark.parametrize(
    "order",
    [
        (partitioned, generated, lowered_by_us, defaults),
        (partitioned, lowered_by_us, generated, defaults),
        (partitioned, lowered_by_us, defaults, generated),
        (lowered_by_us, defaults, partitioned, generated),
        (sorts, lowered_by_us, defaults),
        (lowered_by_us, sorts, defaults),
        (lowered_by_us, defaults, sorts),
    ],
    ids=lambda order: "-".join(step.__name__ for step in order),
)
def test_passes_of_others_before_and_after_leave_a_working_module(order: tuple[Any, ...]) -> None:
    module = net.network()
    for step in order:
        module = step(module)
    calls = str(module["main"])
    taken = partitioned in order and order.index(partitioned) < order.index(lowered_by_us)
    assert ("example_npu" in calls) == taken
    names = {name for name, _ in tvm_compat.prim_funcs(module)}
    assert ("softmax1" in names) == (not taken)
    np.testing.assert_allclose(net.run(module, TARGET), net.wanted(), rtol=1e-3, atol=1e-5)
