"""Reference programs with their sums moved outwards: bit for bit the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


def product() -> Any:
    from tvm import te, topi

    a, b = te.placeholder((17, 33), name="a"), te.placeholder((33, 19), name="b")
    return te.create_prim_func([a, b, topi.nn.relu(topi.nn.matmul(a, b))])


def convolution() -> Any:
    from tvm import te, topi

    data, weight = te.placeholder((1, 5, 9, 9), name="d"), te.placeholder((4, 5, 3, 3), name="w")
    return te.create_prim_func([data, weight, topi.nn.conv2d_nchw(data, weight, 1, 1, 1)])


def softmax() -> Any:
    from tvm import te, topi

    x = te.placeholder((6, 31), name="x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


def total() -> Any:
    from tvm import te, topi

    x = te.placeholder((40,), name="x")
    return te.create_prim_func([x, topi.sum(x, axis=0)])


def columns() -> Any:
    from tvm import te, topi

    x = te.placeholder((40, 3, 5), name="x")
    return te.create_prim_func([x, topi.sum(x, axis=0)])


@pytest.mark.parametrize("program", [product, convolution, softmax, total, columns])
def test_the_result_is_the_same_to_the_last_bit(program: Any) -> None:
    import tvm

    from spaces.check.interchange import interchange
    from spaces.ir import tvm_compat

    module = tvm_compat.normalize(program())
    rng = np.random.default_rng(0)
    shapes = [[int(d) for d in p.shape] for p in module["main"].params]
    inputs = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    found = []
    for version in (module, interchange(module)):
        tensors = [tvm.runtime.tensor(a) for a in inputs]
        tvm.compile(version, target=tvm.target.Target({"kind": "llvm"}))["main"](*tensors)
        found.append(tensors[-1].numpy())
    assert np.array_equal(found[0], found[1])


def test_the_sum_of_a_product_is_outside_of_its_columns() -> None:
    from spaces.check.interchange import interchange
    from spaces.ir import tvm_compat

    text = interchange(tvm_compat.normalize(product())).script()
    assert "_init" in text
    assert "_update" in text


@pytest.mark.parametrize("program", [product, convolution, softmax, columns])
def test_all_loops_but_those_of_sums_are_spread_over_threads(program: Any) -> None:
    from spaces.check.interchange import interchange
    from spaces.ir import tvm_compat
    from spaces.ir.schedules import new_schedule

    module = tvm_compat.normalize(program())
    stages = tvm_compat.stage_blocks(new_schedule(module))
    assert interchange(module).script().count("T.parallel(") == len(stages)


def test_a_program_that_writes_an_element_more_than_once_is_left_alone() -> None:
    from tvm.script import tirx as T

    from spaces.check.interchange import interchange
    from spaces.ir import tvm_compat

    @T.prim_func(s_tir=True)
    def scatter(
        I: T.Buffer((64,), "int32"),  # noqa: E741
        X: T.Buffer((64, 4), "float32"),
        O: T.Buffer((64, 4), "float32"),  # noqa: E741
    ):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for i, j in T.grid(64, 4):
            with T.sblock("O"):
                vi, vj = T.axis.remap("SS", [i, j])
                O[I[vi], vj] = X[vi, vj]

    module = tvm_compat.normalize(scatter)
    assert interchange(module).script() == module.script()


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_a_sum_of_no_terms_is_what_sums_begin_with(shape: tuple[int, ...]) -> None:
    from tvm import te, topi

    from spaces.check.reference import reference
    from spaces.ir import tvm_compat

    x = te.placeholder((*shape, 4), name="x")
    program = te.create_prim_func([x, topi.sum(x, axis=[*range(len(shape))])])
    module = tvm_compat.normalize(program)
    for case in reference(module, "no terms").cases:
        assert case.outputs[1].tolist() == [0.0] * 4
