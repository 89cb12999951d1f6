"""Symbolic dimensions: which a program has, what they are for one shape, programs without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.ir import tvm_compat
from spaces.ir.symbolic import is_symbolic, specialise, symbols, value_of, variables

pytestmark = pytest.mark.tvm


def var(name: str) -> Any:
    from tvm.tirx import Var

    return Var(name, "int64")


def adding(*shape: Any) -> Any:
    """A program that adds one to each element of a tensor of some shape."""
    from tvm import te

    a = te.placeholder(shape, name="A")
    return te.create_prim_func([a, te.compute(shape, lambda *i: a(*i) + 1.0, name="B")])


def test_symbols_are_found_by_name_in_the_order_of_the_parameters() -> None:
    rows, depth = var("rows"), var("depth")
    assert list(symbols(adding(rows, 3, depth))) == ["rows", "depth"]
    assert list(symbols(adding(depth, rows))) == ["depth", "rows"]
    assert symbols(adding(2, 3)) == {}


def test_variables_are_found_each_once_in_order() -> None:
    t, u = var("T"), var("U")
    assert [str(v.name) for v in variables(16 * t + u + t)] == ["T", "U"]
    assert variables(16) == []


def test_symbols_inside_of_expressions_are_found() -> None:
    rows, batch = var("rows"), var("batch")
    assert list(symbols(adding(16 * rows + batch, rows))) == ["rows", "batch"]


def test_a_variable_is_known_by_its_own_name_where_tvm_prints_another() -> None:
    """`T` is TVMScript's own name for its language, so TVM prints such a variable as `T_1`."""
    t = var("T")
    function = adding(t, t, 3)
    assert "T_1" in function.script()
    assert list(symbols(function)) == ["T"]
    assert tvm_compat.param_shape(function.params[0]) is not None
    assert (tvm_compat.param_shape(function.params[0]) or [])[0] == "T"
    assert value_of(16 * t, {"T": 3}) == 48
    assert symbols(specialise(tvm_compat.normalize(function), {"T": 3})["main"]) == {}


def test_a_dimension_is_symbolic_unless_it_is_a_number() -> None:
    from tvm.tirx import IntImm

    assert is_symbolic(var("n"))
    assert is_symbolic(2 * var("n"))
    assert not is_symbolic(IntImm("int64", 4))
    assert not is_symbolic(4)


def test_the_value_of_a_dimension_follows_from_those_of_its_symbols() -> None:
    from tvm import tirx

    n, m = var("n"), var("m")
    assert value_of(7, {}) == 7
    assert value_of(n, {"n": 5}) == 5
    assert value_of(3 * n + m, {"n": 5, "m": 2}) == 17
    assert value_of(tirx.floordiv(n + 3, 4), {"n": 5}) == 2
    assert value_of(n, {"n": 0}) == 0
    assert value_of(n - m, {"n": 1, "m": 4}) == -3


def test_a_dimension_with_a_symbol_of_unknown_value_has_none() -> None:
    n, m = var("n"), var("m")
    assert value_of(n, {}) is None
    assert value_of(n, {"m": 5}) is None
    assert value_of(n + m, {"m": 5}) is None


def test_two_variables_of_one_name_are_one_dimension() -> None:
    """Programs that were written to JSON and read again have variables of their own."""
    assert value_of(var("n") + var("n"), {"n": 4}) == 8


def test_a_dimension_of_32_bits_has_a_value_as_well() -> None:
    from tvm.tirx import Var

    n = Var("n", "int32")
    assert value_of(2 * n, {"n": 21}) == 42
    module = tvm_compat.normalize(adding(n, 4))
    assert tvm_compat.param_shape(specialise(module, {"n": 6})["main"].params[0]) == [6, 4]


def test_a_specialised_program_has_no_symbol_and_computes_the_same() -> None:
    import tvm

    n = var("n")
    module = tvm_compat.normalize(adding(n, 3))
    done = specialise(module, {"n": 5})
    assert symbols(done["main"]) == {}
    assert [tvm_compat.param_shape(p) for p in done["main"].params] == [[5, 3], [5, 3]]
    library = tvm.compile(done, target=tvm.target.Target({"kind": "llvm"}))
    a = np.arange(15, dtype="float32").reshape(5, 3)
    tensors = [tvm.runtime.tensor(a), tvm.runtime.tensor(np.zeros_like(a))]
    library["main"](*tensors)
    np.testing.assert_array_equal(tensors[1].numpy(), a + 1)


def test_a_specialised_program_says_how_many_operations_it_takes() -> None:
    from tvm.s_tir.analysis import estimate_tir_flops

    module = tvm_compat.normalize(adding(var("n"), 3))
    assert estimate_tir_flops(specialise(module, {"n": 7})) == 21


def test_a_program_without_symbols_is_specialised_as_it_is() -> None:
    module = tvm_compat.normalize(adding(2, 3))
    assert specialise(module, {}).same_as(module)
    assert specialise(module, {"n": 3}).same_as(module)


def test_specialising_leaves_the_symbolic_program_as_it_was() -> None:
    module = tvm_compat.normalize(adding(var("n"), 3))
    specialise(module, {"n": 5})
    assert list(symbols(module["main"])) == ["n"]


def test_specialising_without_a_value_names_the_dimension() -> None:
    module = tvm_compat.normalize(adding(var("n"), var("m")))
    with pytest.raises(ValueError, match="dimension m has no value"):
        specialise(module, {"n": 5})
