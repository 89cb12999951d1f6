"""Inputs that a model divides by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.deploy.divisors import find_divisors
from spaces.frontends.inputs import InputSpec, make_inputs
from spaces.frontends.module_source import read_module
from spaces.lowering.lower import lower

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'


def graph(operator: str, dtype: str) -> Any:
    from tvm import relax

    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType((4, 8), dtype)) for name in "xy")
    with builder.function("main", [x, y]):
        made = builder.emit(getattr(relax.op, operator)(x, y))
        builder.emit_func_output(made)
    return lower(read_module(builder.get(), "g", "function").module, LLVM)


@pytest.mark.parametrize(
    ("operator", "dtype", "expected"),
    [
        ("floor_divide", "int32", {1}),
        ("floor_mod", "int64", {1}),
        ("add", "int32", set()),
        ("divide", "float32", set()),
    ],
)
def test_inputs_of_a_graph(operator: str, dtype: str, expected: set[int]) -> None:
    assert find_divisors(graph(operator, dtype)) == expected


def test_inputs_of_programs_are_counted_over_all_of_them() -> None:
    from tvm import te
    from tvm.ir import IRModule

    a, b = (te.placeholder((4,), "int32", name) for name in "ab")
    plus = te.create_prim_func([a, b, te.compute((4,), lambda i: a[i] + b[i])])
    over = te.create_prim_func([a, b, te.compute((4,), lambda i: te.floordiv(a[i], b[i]))])
    assert find_divisors(lower(IRModule({"first": plus, "second": over}), LLVM)) == {4}


def test_they_are_drawn_without_zeros() -> None:
    specs = [InputSpec(name, (50,), "int32") for name in "ab"]
    a, b = make_inputs(specs, divisors={1})
    assert set(np.unique(a)) == {0, 1}
    assert set(np.unique(b)) == {1, 2}
