"""Programs as equations, and what is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spaces.check.reference import reference
from spaces.ir import tvm_compat
from spaces.libraries.einsum import einsum_of

pytestmark = pytest.mark.tvm


def program(make: Callable[[Any, Any], Any], *shapes: tuple[int, ...]) -> Any:
    from tvm import te

    operands = [te.placeholder(shape, name=name) for shape, name in zip(shapes, "ab", strict=False)]
    return te.create_prim_func([*operands, make(*operands)])  # type: ignore[call-arg]


def nn(a: Any, b: Any) -> Any:
    from tvm import topi

    return topi.nn.matmul(a, b)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ac,cb->ab", ((5, 7), (7, 3))),
        ("ac,bc->ab", ((5, 7), (3, 7))),
        ("abd,adc->abc", ((2, 5, 7), (2, 7, 3))),
        ("ac,c->a", ((5, 7), (7,))),
    ],
)
def test_the_equation_computes_what_the_program_does(
    equation: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    from tvm import te

    letters = equation.split("->")[0].replace(",", "")
    sizes = dict(zip(letters, (size for shape in shapes for size in shape), strict=True))
    spatial = equation.split("->")[1]
    (summed,) = set(sizes) - set(spatial)

    def product(a: Any, b: Any) -> Any:
        axis = te.reduce_axis((0, sizes[summed]), summed)

        def at(*index: Any) -> Any:
            names = {**dict(zip(spatial, index, strict=True)), summed: axis}
            left, right = equation.split("->")[0].split(",")
            return te.sum(
                a[tuple(names[n] for n in left)] * b[tuple(names[n] for n in right)], axis
            )

        return te.compute([sizes[n] for n in spatial], at, "c")

    function = program(product, *shapes)
    found = einsum_of(function)
    assert found is not None
    (case, *_) = reference(tvm_compat.normalize(function), "einsum").cases
    given = [case.fresh(place) for place in found.operands]
    assert case.wrong(found.result, np.einsum(found.equation, *given)) is None
    assert found.dtypes == ("float32",) * 3


def test_what_is_more_than_a_sum_of_products_is_none() -> None:
    from tvm import te, topi

    fused = program(lambda a, b: topi.nn.relu(nn(a, b)), (4, 5), (5, 6))
    convolved = program(lambda a, b: topi.nn.conv2d_nchw(a, b, 1, 0, 1), (1, 3, 8, 8), (4, 3, 3, 3))
    squared = te.create_prim_func([x := te.placeholder((6, 6), name="x"), nn(x, x)])
    added = program(topi.add, (4, 5), (4, 5))
    r = te.reduce_axis((0, 4), "r")
    some = program(
        lambda a, b: te.compute((4, 6), lambda i, j: te.sum(a[i, r] * b[r, j], r), "c"),
        *((4, 5), (5, 6)),
    )
    r2 = te.reduce_axis((0, 5), "r")
    diagonal = program(
        lambda a, b: te.compute((5, 6), lambda i, j: te.sum(a[r2, r2] * b[r2, j], r2), "c"),
        *((5, 5), (5, 6)),
    )
    assert [einsum_of(each) for each in (fused, convolved, added, some, diagonal)] == [None] * 5
    found = einsum_of(squared)
    assert found is not None
    assert found.operands == (0, 0)


def test_a_sum_that_starts_elsewhere_than_at_zero_is_none() -> None:
    from tvm import te, tirx

    from_one = te.comm_reducer(
        lambda x, y: x + y, lambda dtype: tirx.const(1, dtype), name="from_one"
    )
    r = te.reduce_axis((0, 5), "r")
    odd = program(
        lambda a, b: te.compute((4, 6), lambda i, j: from_one(a[i, r] * b[r, j], r), "c"),
        *((4, 5), (5, 6)),
    )
    assert einsum_of(odd) is None


def test_a_sum_over_what_neither_operand_has_is_none() -> None:
    from tvm import te

    r = te.reduce_axis((0, 7), "r")
    outer = program(
        lambda a, b: te.compute((4, 6), lambda i, j: te.sum(a[i] * b[j], r), "c"), *((4,), (6,))
    )
    assert einsum_of(outer) is None
