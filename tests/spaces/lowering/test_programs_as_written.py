"""Programs in TVMScript as people write them: without blocks or loops, with strides, with calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, export_library, run_once
from spaces.frontends.function_model import read_program
from spaces.ir.schedules import new_schedule, task_module
from spaces.lowering.extract_tasks import describe_untuned, extract
from spaces.lowering.lower import lower
from tuner.errors import TunerError, UsageError

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'


def programs() -> dict[str, Any]:
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def bare(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (8, 4), "float32")
        B = T.match_buffer(b, (8, 4), "float32")
        for i, j in T.grid(8, 4):
            B[i, j] = A[i, j] * T.float32(2)

    @T.prim_func
    def other_dialect(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (8, 4), "float32")
        B = T.match_buffer(b, (8, 4), "float32")
        for i, j in T.grid(8, 4):
            B[i, j] = A[i, j] * T.float32(2)

    @T.prim_func(s_tir=True)
    def one_block(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (1,), "float32")
        B = T.match_buffer(b, (1,), "float32")
        with T.sblock("all"):
            B[0] = A[0] * T.float32(2)

    @T.prim_func(s_tir=True)
    def one_store(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (1,), "float32")
        B = T.match_buffer(b, (1,), "float32")
        B[0] = A[0] * T.float32(2)

    @T.prim_func(s_tir=True)
    def some_blocks(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (8, 4), "float32")
        B = T.match_buffer(b, (8, 4), "float32")
        C = T.alloc_buffer((8, 4), "float32")
        for i, j in T.grid(8, 4):
            with T.sblock("tripled"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * T.float32(3)
        for i, j in T.grid(8, 4):
            B[i, j] = C[i, j] - A[i, j]

    return {
        f.attrs["global_symbol"]: f
        for f in (bare, other_dialect, one_block, one_store, some_blocks)
    }


def sums() -> dict[str, Any]:
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def product(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (8, 4), "float32")
        B = T.match_buffer(b, (8,), "float32")
        for i in range(8):
            B[i] = T.float32(0)
            for k in range(4):
                B[i] = B[i] + A[i, k]

    @T.prim_func(s_tir=True)
    def running(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (8, 4), "float32")
        B = T.match_buffer(b, (8, 4), "float32")
        for i in range(8):
            B[i, 0] = A[i, 0]
            for j in range(3):
                B[i, j + 1] = B[i, j] + A[i, j + 1]

    @T.prim_func(s_tir=True)
    def smeared(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (8, 4), "float32")
        B = T.match_buffer(b, (8, 4), "float32")
        for i, j in T.grid(8, 4):
            B[i, j] = T.float32(0)
        for i, j in T.grid(7, 4):
            B[i + 1, j] = B[i, j] + A[i, j]

    return {f.attrs["global_symbol"]: f for f in (product, running, smeared)}


def left() -> dict[str, Any]:
    from tvm import te, topi
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def strided(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (8, 4), "float32", strides=(8, 1))
        B = T.match_buffer(b, (8, 4), "float32")
        for i, j in T.grid(8, 4):
            B[i, j] = A[i, j]

    @T.prim_func(s_tir=True)
    def later(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (8, 4), "float32", elem_offset=16)
        B = T.match_buffer(b, (8, 4), "float32")
        for i, j in T.grid(8, 4):
            B[i, j] = A[i, j]

    @T.prim_func(s_tir=True)
    def nothing(a: T.handle):
        T.match_buffer(a, (8, 4), "float32")
        T.evaluate(0)

    x = te.placeholder((4, 100), name="x")
    topk = te.create_prim_func([x, *topi.topk(x, k=5, ret_type="both")])
    return {"strided": strided, "later": later, "nothing": nothing, "topk": topk}


def lowered(function: Any) -> Any:
    return lower(read_program(function, "f.py:f", "f").module, LLVM)


def outputs(module: Any, inputs: list[Any]) -> Any:
    import tvm

    tensors = [tvm.runtime.tensor(data) for data in inputs]
    tvm.compile(module, target="llvm")["main"](*tensors)
    return tensors[-1].numpy()


@pytest.mark.parametrize("name", ["bare", "other_dialect", "one_block", "one_store", "some_blocks"])
def test_a_program_without_blocks_can_be_scheduled(name: str) -> None:
    (task,) = extract(lowered(programs()[name]), LLVM)
    module = task_module(task.module)
    schedule = new_schedule(module)
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    for block in blocks:
        for loop in schedule.get_loops(block)[:1]:
            schedule.parallel(loop)
    shape = (1,) if name.startswith("one") else (8, 4)
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    np.testing.assert_array_equal(outputs(schedule.mod, [x, np.empty_like(x)]), 2 * x)


@pytest.mark.parametrize(
    ("name", "loops"), [("product", [1]), ("running", [0]), ("smeared", [2, 0])]
)
def test_loops_become_a_blocks_only_where_no_step_needs_another(
    name: str, loops: list[int]
) -> None:
    module = task_module(extract(lowered(sums()[name]), LLVM)[0].module)
    schedule = new_schedule(module)
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    assert [len(schedule.get_loops(block)) for block in blocks] == loops
    x = np.random.default_rng(1).normal(size=(8, 4)).astype("float32")
    y = np.zeros((8,) if name == "product" else (8, 4), "float32")
    expected = {"product": x.sum(1), "running": x.cumsum(1)}.get(name)
    if expected is None:
        expected = np.concatenate([np.zeros((1, 4)), x[:7]]).cumsum(0)
    np.testing.assert_allclose(outputs(module, [x, y]), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("strided", "since tensors in there do not lie in one piece (A has the strides 8, 1)"),
        ("later", "since tensors in there do not lie in one piece (A has the offset 16)"),
        ("nothing", "since no parameter is written in there"),
        ("topk", "go to functions of a library, tvm.contrib.sort.topk, which no schedule reaches"),
    ],
)
def test_what_cannot_be_tuned_says_why(name: str, why: str) -> None:
    from tvm.ir import IRModule

    function = left()[name]
    with pytest.raises(TunerError, match="the model holds nothing to tune: 1 function is left"):
        extract(lowered(function), LLVM)
    both = IRModule({"fine": programs()["bare"], name: function.with_attr("global_symbol", name)})
    module = lowered(both)
    assert [task.name for task in extract(module, LLVM)] == ["fine"]
    assert why in describe_untuned(module)
    assert describe_untuned(module).endswith(f": {name}")


def test_programs_made_of_blocks_stay_as_they_are() -> None:
    from tvm import te, topi

    from spaces.ir.root_blocks import with_root_block

    x = te.placeholder((8, 4), name="x")
    made: list[Callable[[Any], Any]] = [topi.nn.relu, topi.nn.softmax, topi.sum]
    for operator in made:
        function = te.create_prim_func([x, operator(x)])
        assert with_root_block(function).same_as(function)


def two_of_one_symbol() -> Any:
    from tvm import te, topi
    from tvm.ir import IRModule

    x = te.placeholder((8, 4), name="x")
    made = [te.create_prim_func([x, operator(x)]) for operator in (topi.nn.relu, topi.negative)]
    return IRModule({"first": made[0], "second": made[1]})


def test_programs_of_one_symbol_get_those_of_their_names(tmp_path: Path) -> None:
    import tvm

    module = lowered(two_of_one_symbol())
    compiled = compile_module(module, LLVM)
    x = np.random.default_rng(1).normal(size=(8, 4)).astype("float32")
    got = run_once(compiled, [x, np.empty_like(x), x, np.empty_like(x)])
    np.testing.assert_array_equal(got[1], np.maximum(x, 0))
    np.testing.assert_array_equal(got[3], -x)
    export_library(compiled, tmp_path / "two.so")
    library = tvm.runtime.load_module(str(tmp_path / "two.so"))
    assert all(library.implements_function(name) for name in ("first", "second"))


def test_a_symbol_that_one_program_has_is_its_own() -> None:
    from tvm.ir import IRModule

    module = lowered(IRModule({"first": two_of_one_symbol()["first"]}))
    assert compile_module(module, LLVM).programs == (("main", 2),)


def test_a_name_that_is_the_symbol_of_another_is_refused() -> None:
    from tvm.ir import IRModule

    two = two_of_one_symbol()
    named = two["first"].with_attr("global_symbol", "a")
    with pytest.raises(UsageError, match="several programs with the global symbol a"):
        lowered(IRModule({"a": two["first"], "b": two["second"], "c": named}))
