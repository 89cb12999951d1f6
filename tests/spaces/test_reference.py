"""What a program computes, and how far a schedule of it may be off."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.task import Task

pytestmark = pytest.mark.tvm

N = 32


def _task(make: Callable[[Any, Any], Any], key: str, dtype: str = "float32") -> Task:
    import tvm
    from tvm import te

    a = te.placeholder((N, N), name="A", dtype=dtype)
    b = te.placeholder((N, N), name="B", dtype=dtype)
    module = tvm.IRModule({"main": te.create_prim_func([a, b, make(a, b)])})
    return Task(key, key, tvm.ir.save_json(module), '{"kind":"llvm"}')


def _matmul(a: Any, b: Any) -> Any:
    from tvm import te

    k = te.reduce_axis((0, N), name="k")
    return te.compute((N, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")


@pytest.fixture(scope="module")
def matmul() -> Task:
    return _task(_matmul, "matmul")


def _log(a: Any, b: Any) -> Any:
    from tvm import te

    return te.compute((N, N), lambda i, j: te.log(a[i, j]) + b[i, j], name="C")


def test_references_that_need_positive_inputs_get_them() -> None:
    import tvm

    from spaces.reference import reference

    known = reference(tvm.ir.load_json(_task(_log, "log").module), "log")
    assert np.isfinite(known.outputs[2]).all()
    assert known.initial[0] is not None
    assert (known.initial[0] > 0).all()
    assert np.allclose(known.outputs[2], np.log(known.initial[0]) + known.initial[1], atol=1e-5)


def test_references_are_the_same_from_the_cache(matmul: Task, tmp_path: Path) -> None:
    import tvm

    from spaces.reference import reference

    module = tvm.ir.load_json(matmul.module)
    made = reference(module, "seed", tmp_path)
    (file,) = tmp_path.iterdir()
    again = reference(module, "seed", tmp_path)
    assert np.array_equal(made.outputs[2], again.outputs[2])
    file.write_bytes(b"torn")
    mended = reference(module, "seed", tmp_path)
    assert np.array_equal(made.outputs[2], mended.outputs[2])
    other = reference(module, "another seed")
    assert not np.array_equal(made.outputs[2], other.outputs[2])


def test_tolerance_grows_with_the_root_of_the_reduction(matmul: Task) -> None:
    import tvm

    from spaces.reference import difference, relative_tolerance

    rtol = relative_tolerance(tvm.ir.load_json(matmul.module)["main"])
    assert rtol == pytest.approx(np.finfo(np.float32).eps * (32 + 8 * math.sqrt(N)))
    want = np.random.default_rng(0).random((4, 4)) + 1
    assert difference(want * (1 + rtol), want, rtol) is None
    assert "largest error" in (difference(want * (1 + 3 * rtol), want, rtol) or "")
    assert "not finite" in (difference(want * math.nan, want, rtol) or "")
    assert difference(want, want * math.nan, rtol) is None
    assert "1 of 2 integers differ" in (difference(np.array([1, 2]), np.array([1, 3]), 0) or "")


def test_indices_stay_inside_what_they_index() -> None:
    import tvm
    from tvm.script import tirx as T

    from spaces.reference import reference

    @T.prim_func(s_tir=True)
    def take(
        A: T.Buffer((3, 8), "float32"),
        index: T.Buffer((64,), "int32"),
        C: T.Buffer((64, 8), "float32"),
    ):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for i, j in T.grid(64, 8):
            with T.sblock("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[index[vi], vj]

    known = reference(tvm.IRModule({"main": take}), "take")
    indices = known.initial[1]
    assert indices is not None
    assert (indices.min(), indices.max()) == (0, 2)
    assert [argument.written for argument in known.arguments] == [False, False, True]


def test_old_contents_count_only_where_the_program_uses_them() -> None:
    import tvm
    from tvm.script import tirx as T

    from spaces.reference import reference

    @T.prim_func(s_tir=True)
    def add_to(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for i in range(8):
            with T.sblock("C"):
                vi = T.axis.remap("S", [i])
                C[vi] = C[vi] + A[vi]

    known = reference(tvm.IRModule({"main": add_to}), "add")
    before, added = known.initial[1], known.initial[0]
    assert before is not None
    assert added is not None
    assert known.outputs[1] == pytest.approx(before + added)
