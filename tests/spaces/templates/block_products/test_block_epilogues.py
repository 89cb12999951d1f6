"""What follows a product of packed weights is computed with it: values, and what stays apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module
from spaces.deploy.apply import apply_best
from spaces.design_space.knob_space import KnobSpace
from spaces.lowering.extract_tasks import call_counts, extract
from spaces.targets.cpu import cpu_of
from spaces.targets.target import resolve_target
from spaces.templates.base import every, setting
from spaces.templates.block_products.template import block_templates
from spaces.templates.contraction import register_tile as k
from tests.contracts.programs import write_down
from tests.spaces.frontends.onnx.beside_onnxruntime import (
    Array,
    by_onnxruntime,
    lowered,
    parsed,
)
from tuner.dynamic.shapes import joint

pytestmark = pytest.mark.tvm

CPU = resolve_target("llvm", cores=1)
WITH_VNNI = '{"kind":"llvm","mcpu":"znver4","num-cores":1}'
DEPTH, COLUMNS = 128, 72
RNG = np.random.default_rng(0)
SAID = f"K = {DEPTH}, N = {COLUMNS}, bits = 4, block_size = 32, accuracy_level = 4"
PRODUCT = f"com.microsoft.MatMulNBits<{SAID}>"
FOLLOWS = {
    "a bias": f"z = {PRODUCT}(x, w, s, , , b)",
    "a residual": f"a = {PRODUCT}(x, w, s) z = Add(y, a)",
    "a bias and an activation": f"a = {PRODUCT}(x, w, s, , , b) c = Sigmoid(a) z = Mul(a, c)",
    "a gate": f"a = {PRODUCT}(x, w, s) c = {PRODUCT}(x, v, s) d = Sigmoid(a) e = Mul(a, d) "
    "z = Mul(e, c)",
}


def network(follows: str, rows: int | str) -> Any:
    """A product of so many rows and what follows it, with another operand as large as its result.

    Args:
        rows: a number, or the name of an open one.
    """

    def codes() -> Array:
        return RNG.integers(0, 256, (COLUMNS, DEPTH // 32, 16)).astype("uint8")

    return parsed(
        f'<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> g '
        f"(float[1, {rows}, {DEPTH}] x, float[1, {rows}, {COLUMNS}] y) => (float[a, b, c] z) "
        f"{{ {follows} }}",
        w=codes(),
        v=codes(),
        s=(RNG.random((COLUMNS, DEPTH // 32)) / 16).astype("float32"),
        axes=np.array([-1]),
        b=RNG.standard_normal(COLUMNS).astype("float32"),
    )


def scheduled(module: Any, height: int) -> Any:
    """A module with a schedule of register tiles of so many rows, or fewer, in each product."""
    best = {}
    for task in extract(module, CPU, shapes=joint([("m", (1, 3, 40))])):
        for template in block_templates(task):
            columns = every(template)
            costs = template.costs_s(columns)
            fits = np.isfinite(costs) & (columns[k.ROWS] <= height)
            tallest = fits & (columns[k.ROWS] == columns[k.ROWS][fits].max())
            row = int(np.where(tallest, costs, np.inf).argmin())
            space = KnobSpace(task, template)
            best[task.key] = write_down(space, setting(columns, row)).candidate
    assert best
    return apply_best(best, CPU)(module)


@pytest.mark.each_value
@pytest.mark.parametrize("rows", [1, 6, "m"], ids=["one row", "six rows", "open rows"])
@pytest.mark.parametrize("name", sorted(FOLLOWS))
def test_a_product_and_what_follows_it_are_one_program(name: str, rows: int | str) -> None:
    """With the values of onnxruntime, in tiles of any height, for any number of rows."""
    import tvm

    if not cpu_of(CPU).vnni:
        pytest.skip("this CPU does not multiply bytes")
    proto = network(FOLLOWS[name], rows)
    module = lowered(proto, CPU)
    for height in (1, 4):
        library = compile_module(scheduled(module, height), CPU).library
        machine = tvm.relax.VirtualMachine(library, tvm.cpu())
        for number in (1, 2, 5, 40) if rows == "m" else (rows,):
            shapes = {"x": (1, number, DEPTH), "y": (1, number, COLUMNS)}
            feeds = {n: RNG.standard_normal(s).astype("float32") for n, s in shapes.items()}
            found = machine["main"](*map(tvm.runtime.tensor, feeds.values())).numpy()
            (wanted,) = by_onnxruntime(proto, feeds)
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.each_value
@pytest.mark.parametrize("rows", [1, 6, "m"], ids=["one row", "six rows", "open rows"])
@pytest.mark.parametrize("name", sorted(FOLLOWS))
def test_nothing_is_left_but_rounding_and_products(name: str, rows: int | str) -> None:
    """Rows are rounded once, also where two products read them."""
    calls = call_counts(lowered(network(FOLLOWS[name], rows), WITH_VNNI))
    rounding = {"row_scales": 1, "row_bytes": 1, "row_sums": 1}
    assert {n: calls.pop(n) for n in rounding} == rounding
    assert sum(calls.values()) == FOLLOWS[name].count(PRODUCT)
    assert all("product_of_bytes" in n for n in calls)


def test_what_moves_elements_stays_apart() -> None:
    """A transpose reads a whole row of the result, which a tile has not."""
    text = f"a = {PRODUCT}(x, w, s) z = Transpose<perm = [0, 2, 1]>(a)"
    names = [*call_counts(lowered(network(text, "m"), WITH_VNNI))]
    assert names[-2:] == ["product_of_bytes", "transpose"]


def test_a_sum_of_a_row_stays_apart() -> None:
    text = f"a = {PRODUCT}(x, w, s) z = ReduceSum<keepdims = 1>(a, axes)"
    names = [*call_counts(lowered(network(text, "m"), WITH_VNNI))]
    assert names[-2:] == ["product_of_bytes", "sum"]
