"""Attention in graphs becomes one program, which computes the same."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, run_once
from spaces.ir import tvm_compat
from spaces.ir.element_types import HALVES
from spaces.lowering.attention.fuse import fuse_attention
from spaces.lowering.attention.program import STEPS
from spaces.lowering.lower import lower
from tests.spaces.templates.attention.attentions import (
    AMPERE,
    HOPPER,
    PROGRAMS,
    WIDE_PROGRAMS,
    Graph,
    Sizes,
    causal,
    plain,
)

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'
SMALL = Sizes(2, 9, 12, 16, 8, 2)
EVERY = {**PROGRAMS, **WIDE_PROGRAMS}
FLOATS = (*HALVES, "float32")


def target_of(text: str) -> Any:
    from tvm.target import Target

    return Target(json.loads(text))


def steps_of(module: Any) -> list[set[str]]:
    """The blocks of each tensor program."""
    return [
        {str(block.name_hint) for block in tvm_compat.sblocks(function)} - {"root"}
        for _, function in tvm_compat.prim_funcs(module)
    ]


def draw(sizes: Sizes, module: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    values = {"m": 7, "n": 19}
    found = []
    for param in module["main"].params:
        shape = [values.get(str(s), s) for s in tvm_compat.param_shape(param) or []]
        kind = tvm_compat.param_dtype(param)
        array = rng.standard_normal(shape).astype("float32")
        found.append(array > 0 if kind == "bool" else cast(array, kind))
    return found


def cast(array: Any, kind: str) -> Any:
    import ml_dtypes

    return array.astype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind)


def compute(module: Any, inputs: list[Any]) -> Any:
    """What TVM alone makes of a graph."""
    from tvm import relax, transform

    passes = [relax.transform.DecomposeOpsForInference(), relax.transform.LegalizeOps()]
    plain_graph = transform.Sequential(passes)(module)
    return run_once(compile_module(plain_graph, LLVM), inputs)[0].astype("float32")


@pytest.mark.parametrize(
    ("name", "sizes"), [(name, s) for name, (_, known) in EVERY.items() for s in known]
)
def test_it_computes_what_the_graph_does(name: str, sizes: Sizes) -> None:
    module = EVERY[name][0](sizes)
    fused = fuse_attention(module, FLOATS)
    assert set(STEPS) in steps_of(fused)
    inputs = draw(sizes, module)
    one, other = (compute(m, inputs) for m in (module, fused))
    # Weights are rounded to halves, and sums of them err by that much of the largest value.
    step = 2.0**-10
    if name in WIDE_PROGRAMS:
        step = 2.0**-21
    elif "bfloat16" in name or name == "chosen":
        step = 2.0**-7
    assert np.isfinite(one).all()
    np.testing.assert_allclose(other, one, atol=4 * step, rtol=2 * step)


@pytest.mark.parametrize("target", [AMPERE, HOPPER])
def test_views_casts_and_groups_of_heads_cost_no_program(target: str) -> None:
    lowered = lower(causal(Sizes(4, "m", "n", 32, 32, 2)), target_of(target))
    assert steps_of(lowered) == [set(STEPS)]


def test_a_graph_that_looks_at_its_sizes_first_is_lowered_as_one_that_does_not() -> None:
    """An importer writes such a check where a table has fewer places than an input may have."""
    from tvm import relax, tirx

    module = causal(Sizes(4, "m", "n", 32, 32, 2))
    graph = module["main"]
    (size,) = {v for p in graph.params for v in p.ty.shape.values if getattr(v, "name", "") == "m"}
    none = relax.ShapeType(values=[tirx.const(0, "int64")])
    above = relax.ShapeExpr([tirx.max(size - 40, tirx.const(0, "int64"))])
    check = relax.BindingBlock([relax.MatchCast(relax.Var("none", none), above, none)])
    body = relax.SeqExpr([check, *graph.body.blocks], graph.body.body)
    module["main"] = relax.Function(graph.params, body, graph.ret_ty, attrs=graph.attrs)
    lowered = lower(module, target_of(HOPPER))
    assert steps_of(lowered) == [set(STEPS)]
    first = lowered["main"].body.blocks[0]
    assert [type(binding) for binding in first.bindings] == [relax.MatchCast]


@pytest.mark.parametrize("arch", ["sm_75", "sm_70"])
def test_older_tensor_cores_keep_the_steps_apart(arch: str) -> None:
    lowered = lower(plain(SMALL), target_of(f'{{"kind":"cuda","arch":"{arch}"}}'))
    assert set(STEPS) not in steps_of(lowered)


@pytest.mark.parametrize("kind", FLOATS)
def test_a_cpu_has_one_program_for_any_floats(kind: str) -> None:
    lowered = lower(causal(Sizes(4, "m", "n", 32, 32, 2), kind), target_of(LLVM))
    assert steps_of(lowered) == [set(STEPS)]


def with_weights(g: Graph, q: Any, k: Any, v: Any) -> Any:
    """The weights are a result, too."""
    from tvm import relax

    weights = g.cast(g.emit(g.op.nn.softmax(g.multiply(q, g.turn(k, 0, 1, 3, 2)), -1)), "float16")
    return relax.Tuple([g.multiply(weights, v), weights])


def over_rows(g: Graph, q: Any, k: Any, v: Any) -> Any:
    """A softmax over the rows."""
    scores = g.multiply(q, g.turn(k, 0, 1, 3, 2))
    return g.multiply(g.cast(g.emit(g.op.nn.softmax(scores, -2)), "float16"), v)


def scaled_weights(g: Graph, q: Any, k: Any, v: Any) -> Any:
    """Weights that are changed after the softmax."""
    weights = g.emit(g.op.nn.softmax(g.multiply(q, g.turn(k, 0, 1, 3, 2)), -1))
    changed = g.emit(g.op.multiply(weights, g.number(0.5)))
    return g.multiply(g.cast(changed, "float16"), v)


def turned_scores(g: Graph, q: Any, k: Any, v: Any) -> Any:
    """Keys by queries, turned before the softmax."""
    scores = g.turn(g.multiply(k, g.turn(q, 0, 1, 3, 2)), 0, 1, 3, 2)
    return g.multiply(g.cast(g.emit(g.op.nn.softmax(scores, -1)), "float16"), v)


def guarded_columns(g: Graph, q: Any, k: Any, v: Any) -> Any:
    """Weights that are zero in columns, not rows, all of whose scores are minus infinity."""
    lowest = g.number(-math.inf)
    scores = g.multiply(q, g.turn(k, 0, 1, 3, 2))
    weights = g.emit(g.op.nn.softmax(scores, -1))
    some = g.cast(g.emit(g.op.logical_not(g.emit(g.op.equal(scores, lowest)))), "int8")
    none = g.emit(g.op.logical_not(g.cast(g.emit(g.op.max(some, -2, True)), "bool")))
    zeros = g.emit(g.op.full_like(weights, g.number(0.0)))
    return g.multiply(g.cast(g.emit(g.op.where(none, zeros, weights)), "float16"), v)


def both_ways(g: Graph, q: Any, k: Any, v: Any) -> Any:
    """Scores of rows and keys, and of keys and rows."""
    scores = g.multiply(q, g.turn(k, 0, 1, 3, 2))
    added = g.emit(g.op.add(scores, g.turn(scores, 0, 1, 3, 2)))
    return g.multiply(g.cast(g.emit(g.op.nn.softmax(added, -1)), "float16"), v)


def whole_weights(g: Graph, q: Any, k: Any, v: Any) -> Any:
    """Weights that are zero or one."""
    weights = g.emit(g.op.nn.softmax(g.multiply(q, g.turn(k, 0, 1, 3, 2)), -1))
    return g.multiply(g.cast(g.cast(weights, "int32"), "float16"), v)


def wide_scores(g: Graph, q: Any, k: Any, v: Any) -> Any:
    """A softmax in float64."""
    scores = g.multiply(g.cast(q, "float64"), g.cast(g.turn(k, 0, 1, 3, 2), "float64"), "float64")
    return g.multiply(g.cast(g.emit(g.op.nn.softmax(scores, -1)), "float16"), v)


def guarded_elsewhere(g: Graph, q: Any, k: Any, v: Any) -> Any:
    """A guard that is read at another place than the weights."""
    lowest = g.number(-math.inf)
    scores = g.multiply(q, g.turn(k, 0, 1, 3, 2))
    weights = g.turn(g.emit(g.op.nn.softmax(scores, -1)), 0, 2, 1, 3)
    some = g.cast(g.emit(g.op.logical_not(g.emit(g.op.equal(scores, lowest)))), "int8")
    none = g.emit(g.op.logical_not(g.cast(g.emit(g.op.max(some, -1, True)), "bool")))
    zeros = g.emit(g.op.full_like(weights, g.number(0.0)))
    left = g.turn(g.emit(g.op.where(none, zeros, weights)), 0, 2, 1, 3)
    return g.multiply(g.cast(left, "float16"), v)


def guarded_more(g: Graph, q: Any, k: Any, v: Any) -> Any:
    """A choice of more weights than the softmax has."""
    lowest = g.number(-math.inf)
    scores = g.multiply(q, g.turn(k, 0, 1, 3, 2))
    weights = g.emit(g.op.nn.softmax(scores, -1))
    some = g.cast(g.emit(g.op.logical_not(g.emit(g.op.equal(scores, lowest)))), "int8")
    none = g.emit(g.op.logical_not(g.cast(g.emit(g.op.max(some, -1, True)), "bool")))
    zeros = g.emit(g.op.full((3, 9, 9, 9), g.number(0.0)))
    return g.multiply(g.cast(g.emit(g.op.where(none, zeros, weights)), "float16"), v)


def vector_of_a_matrix(g: Graph, q: Any, k: Any, v: Any) -> Any:
    """A product with a vector, and one after a choice: no attention at all."""
    vector = g.emit(g.op.max(v, [0, 1, 2]))
    chosen = g.emit(g.op.where(g.emit(g.op.greater(q, g.number(0.0, "float16"))), q, q))
    return g.emit(g.op.add(g.multiply(v, vector), g.multiply(chosen, vector)))


def scaled_by_nothing(g: Graph, q: Any, k: Any, v: Any) -> Any:
    """Queries divided by zero, which no number stands for."""
    none = g.emit(g.op.divide(g.cast(q, "float32"), g.number(0.0)))
    scores = g.multiply(none, g.cast(g.turn(k, 0, 1, 3, 2), "float32"))
    return g.multiply(g.cast(g.emit(g.op.nn.softmax(scores, -1)), "float16"), v)


@pytest.mark.parametrize(
    "body",
    [
        *(with_weights, over_rows, scaled_weights, turned_scores, guarded_columns),
        *(both_ways, whole_weights, wide_scores, guarded_elsewhere),
        *(guarded_more, vector_of_a_matrix, scaled_by_nothing),
    ],
)
def test_what_is_another_computation_stays_as_it_is(body: Any) -> None:
    g = Graph()
    shapes = [[1, 9, 9, 16], [1, 9, 9, 16], [1, 9, 9, 16]]
    q, k, v = (g.parameter([*shape], "float16") for shape in shapes)
    module = g.write(lambda: body(g, q, k, v))
    assert fuse_attention(module, HALVES).same_as(module)


@pytest.mark.parametrize(
    "sizes", [Sizes(2, 9, 12, 300, 8, 2), Sizes(2, 9, 12, 16, 300, 2), Sizes(2, 9, 12, "d", 8, 2)]
)
def test_heads_too_wide_or_of_an_open_width_stay_as_they_are(sizes: Sizes) -> None:
    module = plain(sizes)
    assert fuse_attention(module, HALVES).same_as(module)


def test_types_that_are_not_asked_for_stay_as_they_are() -> None:
    module = plain(SMALL, "float32")
    assert fuse_attention(module, HALVES).same_as(module)
    lowered = lower(module, target_of(HOPPER))
    assert set(STEPS) not in steps_of(lowered)


def test_a_row_with_what_is_no_number_has_none_though_others_are_guarded() -> None:
    module = causal(Sizes(2, 5, 5, 16, 8, 1))
    fused = fuse_attention(module, HALVES)
    inputs = draw(SMALL, module)
    inputs[0][0, 2, 0] = np.nan  # of the first head's third row
    one, other = (compute(m, inputs) for m in (module, fused))
    assert np.isnan(one).any()
    assert not np.isnan(one).all()
    assert np.array_equal(np.isnan(one), np.isnan(other))


def test_scores_that_are_no_numbers_are_compared_as_such() -> None:
    """Not less than zero is not at least zero."""
    g = Graph()
    q, k, v = (g.parameter([1, 2, 6, 16], "float16") for _ in range(3))
    mask = g.parameter([1, 1, 1, 6], "float32")

    def body() -> Any:
        seen = g.emit(g.op.logical_not(g.emit(g.op.less(mask, g.number(0.0)))))
        scores = g.multiply(q, g.turn(k, 0, 1, 3, 2))
        left = g.emit(g.op.where(seen, scores, g.number(-1e4)))
        return g.multiply(g.cast(g.emit(g.op.nn.softmax(left, -1)), "float16"), v)

    module = g.write(body)
    fused = fuse_attention(module, HALVES)
    assert set(STEPS) in steps_of(fused)
    inputs = draw(SMALL, module)
    inputs[3][..., 3] = np.nan
    one, other = (compute(m, inputs) for m in (module, fused))
    np.testing.assert_allclose(other, one, atol=4e-3)
