"""Functions that are told numbers besides the sizes of open dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, run_once
from spaces.lowering.extract_tasks import describe_untuned, extract
from spaces.lowering.lower import lower

pytestmark = pytest.mark.tvm
LLVM = '{"kind":"llvm","num-cores":1}'


def positions(emit: Callable[[Any, Any, Any], Any]) -> Any:
    """A graph of `new` [n] and `known` [past], which gives what is emitted for its builder and
    these two sizes."""
    from tvm import relax, tirx

    n, past = tirx.Var("n", "int64"), tirx.Var("past", "int64")
    builder = relax.BlockBuilder()
    new, known = (
        relax.Var(s, relax.TensorType((d,), "float32")) for s, d in (("new", n), ("known", past))
    )
    with builder.function("main", [new, known]):
        with builder.dataflow():
            output = builder.emit_output(emit(builder, n, past))
        builder.emit_func_output(output)
    return builder.get()


def run(module: Any, new: int, known: int) -> Any:
    inputs = [np.zeros(size, "float32") for size in (new, known)]
    (got,) = run_once(compile_module(lower(module, LLVM), LLVM), inputs)
    return got


@pytest.mark.parametrize(("new", "known"), [(3, 4), (1, 7), (5, 1), (4, 0)])
def test_a_range_that_begins_at_an_open_size_is_fused_with_what_follows(
    new: int, known: int
) -> None:
    from tvm import relax

    def column(builder: Any, n: Any, past: Any) -> Any:
        range_ = builder.emit(relax.op.arange(past, past + n, 1, "int64"))
        return builder.emit(relax.op.negative(builder.emit(relax.op.expand_dims(range_, [1]))))

    got = run(positions(column), new, known)
    np.testing.assert_array_equal(got, -np.arange(known, known + new)[:, None])


def test_two_such_numbers_keep_their_order() -> None:
    from tvm import relax

    def column(builder: Any, n: Any, past: Any) -> Any:
        range_ = builder.emit(relax.op.arange(past, past + n * 3, 3, "int64"))
        tail = builder.emit(relax.op.arange(n + 2 * past, 2 * n + 2 * past, 1, "int64"))
        return builder.emit(
            relax.op.multiply(builder.emit(relax.op.expand_dims(range_, [1])), tail)
        )

    got = run(positions(column), 2, 5)
    np.testing.assert_array_equal(got, np.array([[5], [8]]) * np.array([12, 13]))


def test_what_is_told_numbers_is_no_task_and_says_why() -> None:
    from tvm import relax

    def rows(builder: Any, n: Any, past: Any) -> Any:
        range_ = builder.emit(relax.op.arange(past, past + n, 1, "int64"))
        column = builder.emit(relax.op.expand_dims(range_, [1]))
        wide = builder.emit(relax.op.astype(column, "float32"))
        return builder.emit(relax.op.nn.softmax(wide, axis=0))

    lowered = lower(positions(rows), LLVM)
    shapes = (((("n", 3), ("past", 4)), 1.0),)
    assert [task.name for task in extract(lowered, LLVM, None, shapes)] == ["softmax"]
    told = describe_untuned(lowered, shapes)
    assert told.startswith("1 function is left as it is, since numbers are handed in")
    assert "(past)" in told
