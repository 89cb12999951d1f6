"""What a program computes, and how far a schedule of it may be off."""

from __future__ import annotations

import errno
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

    from spaces.check.reference import reference

    for known in reference(tvm.ir.load_json(_task(_log, "log").module), "log").cases:
        assert np.isfinite(known.outputs[2]).all()
        a, b = known.initial[0], known.initial[1]
        assert a is not None
        assert b is not None
        assert (a > 0).all()
        assert (b < 0).any()
        assert np.allclose(known.outputs[2], np.log(a) + b, atol=1e-5, rtol=1e-6)


def test_references_are_computed_on_all_threads_and_with_what_the_cpu_has(matmul: Task) -> None:
    import tvm

    from spaces.check.interchange import interchange
    from spaces.check.whole_program import compile_unscheduled
    from spaces.targets.host import this_host

    library = compile_unscheduled(interchange(tvm.ir.load_json(matmul.module)))
    code = library.mod.inspect_source("ll")
    assert "ParallelLaunch" in code
    assert f'"target-cpu"="{this_host().config()["mcpu"]}"' in code


def test_references_are_the_same_from_the_cache(matmul: Task, tmp_path: Path) -> None:
    import tvm

    from spaces.check.reference import reference

    module = tvm.ir.load_json(matmul.module)
    made = reference(module, "seed", tmp_path)
    (file,) = tmp_path.iterdir()
    again = reference(module, "seed", tmp_path)
    assert len(made.cases) == 2
    for one, two in zip(made.cases, again.cases, strict=True):
        assert np.array_equal(one.outputs[2], two.outputs[2])
        assert np.array_equal(one.bounds[2], two.bounds[2])
        assert all(np.array_equal(one.fresh(i), two.fresh(i)) for i in range(2))
    for torn in (b"torn", b"", file.read_bytes()[:-100]):
        file.write_bytes(torn)
        mended = reference(module, "seed", tmp_path)
        assert np.array_equal(made.cases[0].outputs[2], mended.cases[0].outputs[2])
    other = reference(module, "another seed")
    assert not np.array_equal(made.cases[0].outputs[2], other.cases[0].outputs[2])


def test_each_element_has_a_bound_of_what_was_added_up_for_it(matmul: Task) -> None:
    """By the model, four standard deviations of half an eps in each of N additions."""
    import tvm

    from spaces.check.reference import reference

    eps = np.finfo(np.float32).eps
    for known in reference(tvm.ir.load_json(matmul.module), "matmul").cases:
        a, b = (known.fresh(i).astype(np.float64) for i in range(2))
        squares, total = np.square(a) @ np.square(b), a @ b
        order = np.sqrt(N * (np.square(total) / 3 + squares / 6))
        want = 2 * eps * order + eps * np.sqrt(N * squares)
        bound = known.bounds[2]
        assert bound is not None
        assert bound == pytest.approx(want, rel=1e-3)
        assert known.wrong(2, total.astype(np.float32)) is None
        error = known.wrong(2, known.outputs[2] + 1.1 * bound)
        assert error is not None
        assert "largest error" in error


def test_what_nobody_can_follow_has_a_coarse_bound() -> None:
    """As functions of functions of functions, whose bounds would grow with each."""
    import tvm
    from tvm import te

    from spaces.check.reference import reference

    def nested(a: Any, b: Any) -> Any:
        def element(i: Any, j: Any) -> Any:
            value = a[i, j]
            for _ in range(5):
                value = te.tanh(value + b[i, j])
            return value

        return te.compute((N, N), element, name="C")

    for known in reference(tvm.ir.load_json(_task(nested, "nested").module), "nested").cases:
        want, bound = known.outputs[2], known.bounds[2]
        assert bound is not None
        rms = math.sqrt(float(np.mean(np.square(want.astype(np.float64)))))
        assert bound == pytest.approx(np.finfo(np.float32).eps * 32 * (np.abs(want) + rms))


def test_a_full_disk_costs_the_cache_and_leaves_nothing(
    matmul: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tvm

    from spaces.check import reference as referring
    from spaces.check import stored

    def full(file: Any, **_: Any) -> None:
        file.write(b"some")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(stored.np, "savez", full)
    made = referring.reference(tvm.ir.load_json(matmul.module), "seed", tmp_path)
    assert len(made.cases) == 2
    assert list(tmp_path.iterdir()) == []


def test_what_is_infinite_on_any_range_is_looked_for_on_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a mask of -inf. A range is run twice, since old contents might come through."""
    import tvm
    from tvm import te

    from spaces.check import reference as referring

    def masked(a: Any, b: Any) -> Any:
        low = tvm.tirx.const(-math.inf, "float32")
        return te.compute(
            (N, N), lambda i, j: tvm.tirx.Select(j <= i, a[i, j] + b[i, j], low), name="C"
        )

    runs = []
    run = referring.WholeProgram.run
    monkeypatch.setattr(
        referring.WholeProgram,
        "run",
        lambda self, contents: (runs.append(1), run(self, contents))[1],
    )
    task = _task(masked, "masked")
    for known in referring.reference(tvm.ir.load_json(task.module), "masked").cases:
        assert np.isneginf(known.outputs[2]).sum() == N * (N - 1) // 2
    assert len(runs) == 2 * 2 * 2


def test_nothing_is_read_that_a_condition_keeps_from_being_read() -> None:
    """A bound of either side would read beyond the tensor where the condition is false."""
    import tvm
    from tvm import te

    from spaces.check.reference import reference

    def sampled(a: Any, b: Any) -> Any:
        def element(i: Any, j: Any) -> Any:
            where = a[i, j] * 3.0 + 7.0
            inside = tvm.tirx.all(where >= 0.0, where < float(N))
            read = b[i, tvm.tirx.Cast("int32", where)]
            return tvm.tirx.if_then_else(inside, read, tvm.tirx.const(0.0, "float32"))

        return te.compute((N, N), element, name="C")

    module = tvm.ir.load_json(_task(sampled, "sampled").module)
    for one, two in zip(reference(module, "s").cases, reference(module, "s").cases, strict=True):
        assert np.array_equal(one.bounds[2], two.bounds[2])
        want = one.outputs[2]
        rms = math.sqrt(float(np.mean(np.square(want.astype(np.float64)))))
        assert one.bounds[2] == pytest.approx(np.finfo(np.float32).eps * 32 * (abs(want) + rms))


def test_the_bound_of_products_of_products_grows_with_their_number_alone() -> None:
    import tvm
    from tvm import te

    from spaces.check.error_bounds import with_bounds

    def length(degree: int) -> int:
        def polynomial(a: Any, b: Any) -> Any:
            def element(i: Any, j: Any) -> Any:
                x = a[i, j] * b[i, j] + b[i, j]
                value = x
                for power in range(degree):
                    value = value * x + float(power)
                return value

            return te.compute((N, N), element, name="C")

        module = tvm.ir.load_json(_task(polynomial, "polynomial").module)
        return len(with_bounds(module["main"], [2]).function.script())

    assert length(12) - length(8) < 2.5 * (length(8) - length(4))


def test_tiny_terms_may_be_added_up_in_any_order() -> None:
    import tvm
    from tvm import te

    from spaces.check.reference import reference

    def tiny(a: Any, b: Any) -> Any:
        k = te.reduce_axis((0, N), name="k")
        scale = tvm.tirx.const(1e-28, "float32")
        return te.compute((N, N), lambda i, j: te.sum(a[i, k] * scale * b[k, j], axis=k), name="C")

    for known in reference(tvm.ir.load_json(_task(tiny, "tiny").module), "tiny").cases:
        a, b = known.fresh(0) * np.float32(1e-28), known.fresh(1)
        other = np.zeros((N, N), np.float32)
        for k in reversed(range(N)):
            other += a[:, k : k + 1] * b[k]
        assert known.wrong(2, other) is None


def test_halves_below_their_least_normal_number_may_err_by_their_last_digit() -> None:
    """A share of 1.5e-6 is rounded to either of two neighbours, by the order of operations."""
    import tvm
    from tvm import te

    from spaces.check.reference import reference

    def shares(a: Any, b: Any) -> Any:
        def element(i: Any, j: Any) -> Any:
            share = (a[i, j] * tvm.tirx.const(1e-6, "float32") * b[i, j]).astype("float16")
            return share.astype("float32") * tvm.tirx.const(1024.0, "float32")

        return te.compute((N, N), element, name="C")

    for known in reference(tvm.ir.load_json(_task(shares, "shares").module), "shares").cases:
        right = known.outputs[2]
        small = np.abs(right) < 1024 * np.finfo(np.float16).tiny
        assert small.mean() > 0.5
        beside, far = (
            np.where(small, right + np.float32(step), right) for step in (2**-14, 2**-12)
        )
        assert known.wrong(2, beside) is None
        assert known.wrong(2, far) is not None


def test_very_long_sums_may_be_added_up_in_any_order() -> None:
    """One by one, sums of squares lose more than independent roundings say: the rest is small."""
    import tvm
    from tvm import te

    from spaces.check.reference import reference

    length = 1 << 20
    a = te.placeholder((1, length), name="A")
    k = te.reduce_axis((0, length), name="k")
    c = te.compute((1,), lambda i: te.sum(a[i, k] * a[i, k], axis=k), name="C")
    module = tvm.IRModule({"main": te.create_prim_func([a, c])})
    for known in reference(module, "squares").cases:
        squares = np.square(known.fresh(0), dtype=np.float32)
        exact = np.sum(squares, axis=1, dtype=np.float64)
        in_pairs = np.sum(squares, axis=1, dtype=np.float32)
        one_by_one = np.cumsum(squares, axis=1, dtype=np.float32)[:, -1]
        for found in (exact.astype(np.float32), in_pairs, one_by_one):
            assert known.wrong(1, found) is None
        assert known.wrong(1, in_pairs * np.float32(0.995)) is not None
        assert known.wrong(1, in_pairs * np.float32(1.005)) is not None


def test_indices_stay_inside_what_they_index() -> None:
    import tvm
    from tvm.script import tirx as T

    from spaces.check.reference import reference

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

    known = reference(tvm.IRModule({"main": take}), "take").cases[0]
    indices = known.initial[1]
    assert indices is not None
    assert (indices.min(), indices.max()) == (0, 2)
    assert [argument.written for argument in known.arguments] == [False, False, True]


def test_old_contents_count_only_where_the_program_uses_them() -> None:
    import tvm
    from tvm.script import tirx as T

    from spaces.check.reference import reference

    @T.prim_func(s_tir=True)
    def add_to(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for i in range(8):
            with T.sblock("C"):
                vi = T.axis.remap("S", [i])
                C[vi] = C[vi] + A[vi]

    known = reference(tvm.IRModule({"main": add_to}), "add").cases[0]
    before, added = known.initial[1], known.initial[0]
    assert before is not None
    assert added is not None
    assert known.outputs[1] == pytest.approx(before + added)


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from(["float32", "float32", "float64", "float16"]),
    scale=st.sampled_from([0.0, 1e-30, 1e-3, 1.0, 1e3, 1e25]),
    off=st.sampled_from([0.0, 0.3, 0.49, 0.51, 0.9, 1.1, 2.5, 40.0]),
    odd=st.sampled_from([None, None, None, math.nan, math.inf, -math.inf]),
    where=st.sampled_from(["got", "want", "both"]),
)
def test_outputs_differ_where_an_element_is_off_by_more_than_its_bound_or_of_another_class(
    seed: int, dtype: str, scale: float, off: float, odd: float | None, where: str
) -> None:
    from spaces.check.compare import difference

    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(0, 6, size=int(rng.integers(0, 4))))
    with np.errstate(all="ignore"):
        want = (rng.standard_normal(shape) * scale).astype(dtype)
        bound = np.abs(np.asarray(want, "float64") * rng.choice([0.0, 1e-3, 1.0], shape))
        want = np.asarray(want)
        got = np.asarray(want + off * bound * rng.uniform(-1, 1, shape)).astype(dtype)
        if odd is not None and want.size:
            for name, array in (("got", got), ("want", want)):
                if where in (name, "both"):
                    array.flat[int(rng.integers(want.size))] = odd
        wide = "float64" if dtype == "float64" else "float32"
        bound = np.asarray(bound, wide)
        equal = all(
            _equal(float(g), float(w), float(b), float(np.finfo(dtype).max), wide)
            for g, w, b in zip(got.flat, want.flat, bound.flat, strict=True)
        )
    assert (difference(got, want, bound) is None) == equal


def _equal(got: float, want: float, bound: float, largest: float, wide: str) -> bool:
    """The rule for one element."""
    if math.isnan(want):
        return math.isnan(got)
    if math.isinf(want):
        return got == want
    if math.isinf(got):
        return (got > 0) == (want > 0) and abs(want) + bound > largest
    number = np.dtype(wide).type
    return bool(abs(number(got) - number(want)) <= number(bound))
