"""Modules of TVM: which sizes a graph takes, what is said of the others, what is bound to them."""

from __future__ import annotations

from typing import Any

import pytest

from spaces.frontends.declared import resolve
from spaces.frontends.inputs import InputSpec
from spaces.frontends.module_source import read_module
from spaces.ir.symbolic import value_of
from tuner.dynamic.shapes import NO_DOMAIN, Domain
from tuner.errors import TunerError

pytestmark = pytest.mark.tvm


def sliding(*, least: int, most: int) -> Any:
    """A graph over (n, 2) and (2 * n, 2) that adds a table of 8 rows to the first of them."""
    import numpy as np
    from tvm import relax, tirx

    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 2), "float32"))
    y = relax.Var("y", relax.TensorType((2 * n, 2), "float32"))
    table = relax.const(np.zeros((8, 2), "float32"))
    b = relax.BlockBuilder()
    attrs = {"tir_var_lower_bound": {"n": least}, "tir_var_upper_bound": {"n": most}}
    with b.function("main", [x, y], attrs=attrs):
        out = b.emit(relax.op.add(x, table))
        b.emit_func_output(b.emit(relax.Tuple([out, y])))
    return b.get()


def closed(
    module: Any, domain: Domain = NO_DOMAIN, **shapes: tuple[int, ...]
) -> tuple[Any, tuple[InputSpec, ...]]:
    """A graph with its dimensions bound, and its inputs."""
    source = read_module(module, "net", "function")
    inputs = resolve(source.declared, shapes.items(), domain)
    return source.imported(inputs, domain), inputs


def refusal(module: Any, **shapes: tuple[int, ...]) -> str:
    with pytest.raises(TunerError) as refused:
        closed(module, **shapes)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_sizes_outside_of_the_bounds_of_a_graph_are_refused() -> None:
    module = sliding(least=4, most=16)
    said = refusal(module, x=(17, 2), y=(34, 2))
    assert said == "--shape x: dimension 0: the model takes at most 16, not 17"
    assert "at least 4, not 3" in refusal(module, x=(3, 2), y=(6, 2))


def test_a_lower_bound_of_two_is_the_exporters_and_refuses_nothing() -> None:
    module, inputs = closed(sliding(least=2, most=16), x=(1, 2), y=(2, 2))
    assert [i.shape for i in inputs] == [(1, 2), (2, 2)]
    assert [int(d) for d in module["main"].params[1].ty.shape.values] == [2, 2]


def test_shapes_that_an_operator_refuses_are_told_with_its_name() -> None:
    said = refusal(sliding(least=2, most=16), x=(9, 2), y=(18, 2))
    assert said.startswith("the model does not take these shapes: relax.add:")
    assert "9" in said


def test_a_size_that_only_an_expression_gives_binds_nothing() -> None:
    assert "--shape x=?,2" in refusal(sliding(least=2, most=16), y=(16, 2))


def test_a_domain_outside_of_the_bounds_of_a_graph_is_refused() -> None:
    module = sliding(least=4, most=16)
    for sizes, says in ([(4, 17), "at most 16, not 17"], [(3, 9), "at least 4, not 3"]):
        with pytest.raises(TunerError, match=f"^--dim n: the model takes {says}$"):
            closed(module, Domain((("n", sizes),)))


def test_a_graph_keeps_no_bounds_that_its_memory_would_be_planned_for() -> None:
    module, _ = closed(sliding(least=4, most=16), Domain((("n", (8,)),)))
    assert "tir_var_upper_bound" not in dict(module["main"].attrs)


def test_what_follows_from_another_inputs_dimension_stays_an_expression() -> None:
    module, inputs = closed(sliding(least=4, most=16), Domain((("n", (8,)),)))
    assert [i.dims for i in inputs] == [("n", 2), ("n_x2", 2)]
    assert [i.shape for i in inputs] == [(8, 2), (16, 2)]
    (n, _), (double, _) = (p.ty.shape.values for p in module["main"].params)
    assert value_of(double, {str(n.name): 5}) == 10


def test_a_graph_says_what_its_own_symbols_are() -> None:
    declared = read_module(sliding(least=4, most=16), "net", "function").declared
    assert [one.dims for one in declared.inputs] == [("n", 2), ("n_x2", 2)]
    assert (declared.symbols, declared.bounds) == (("n",), {"n": (4, 16)})
