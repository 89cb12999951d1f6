"""What a program computes, and how far a schedule of it may be off."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_references_are_computed_on_all_threads_and_with_what_the_cpu_has(matmul: Task) -> None:
    import tvm

    from spaces import names
    from spaces.reference import compiled

    code = compiled(tvm.ir.load_json(matmul.module)).mod.inspect_source("ll")
    assert "ParallelLaunch" in code
    assert f'"target-cpu"="{names.host_cpu()}"' in code


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


def _slowly(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], rtol: float) -> str | None:
    """The rule itself, without the look that spares most arrays of it."""
    from spaces import reference

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "_surely_equal", lambda got, want, rtol: False)
        return reference.difference(got, want, rtol)


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from(["float32", "float32", "float64", "float16"]),
    scale=st.sampled_from([0.0, 1e-30, 1e-3, 1.0, 1e3, 1e25]),
    off=st.sampled_from([0.0, 0.3, 0.49, 0.51, 0.9, 1.1, 2.5, 40.0]),
    odd=st.sampled_from([None, None, None, math.nan, math.inf, -math.inf]),
    where=st.sampled_from(["got", "want", "both"]),
)
def test_what_is_equal_at_a_glance_is_equal_by_the_rule(
    seed: int, dtype: str, scale: float, off: float, odd: float | None, where: str
) -> None:
    from spaces.reference import difference

    rng, rtol = np.random.default_rng(seed), 1e-3
    shape = tuple(int(n) for n in rng.integers(0, 6, size=int(rng.integers(0, 4))))
    with np.errstate(all="ignore"):
        want = (rng.standard_normal(shape) * scale).astype(dtype)
        rms = float(np.sqrt(np.mean(np.square(want.astype("float64"))))) if want.size else 0.0
        got = (want + off * rtol * rms * rng.uniform(-1, 1, shape)).astype(dtype)
    if odd is not None and want.size:
        for name, array in (("got", got), ("want", want)):
            if where in (name, "both"):
                array.flat[int(rng.integers(want.size))] = odd
    with np.errstate(all="ignore"):
        assert difference(got, want, rtol) == _slowly(got, want, rtol)
