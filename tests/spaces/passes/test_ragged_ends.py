"""Passes for symbolic sizes, ragged ends and transposing copies leave the results as they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.few_examples import examples

pytestmark = pytest.mark.tvm

SIZES = (0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64)
Change = Callable[[Any], Any]


def copy(rows: Any, columns: Any, *, across: bool, pad: Any = None) -> Any:
    """A program that copies a matrix, `across` transposed, zeros where there is none."""
    from tvm import te, tirx

    given = te.placeholder((rows, columns), name="A")
    shape = [rows, columns] if pad is None else list(pad)

    def element(i: Any, j: Any) -> Any:
        found = given[i, j]
        if pad is not None:
            inside = i < rows if pad[0] > rows else j < columns
            found = tirx.if_then_else(inside, found, tirx.const(0.0, "float32"))
        return found

    if across:
        made = te.compute(shape[::-1], lambda j, i: element(i, j), name="B")
    else:
        made = te.compute(shape, element, name="B")
    return te.create_prim_func([given, made])


def scaled(columns: Any) -> Any:
    """Each row times a number of its own, plus a row, nothing below zero."""
    from tvm import te, tirx

    rows = tirx.const(5, "int64")
    given = te.placeholder((rows, columns), name="A")
    scale, shift = te.placeholder((rows,), name="S"), te.placeholder((columns,), name="C")

    def element(i: Any, j: Any) -> Any:
        return te.max(given[i, j] * scale[i] + shift[j], tirx.const(0.0, "float32"))

    return te.create_prim_func(
        [given, scale, shift, te.compute((rows, columns), element, name="B")]
    )


def scheduled(program: Any, *, lanes: int, along: int) -> Any:
    """The program with vectors along one of its loops, which becomes the innermost."""
    from tvm.s_tir import Schedule

    schedule = Schedule(program)
    block = schedule.get_sblock("B")
    loops = list(schedule.get_loops(block))
    inner = loops.pop(along)
    outside, vector = schedule.split(inner, [None, lanes])
    schedule.reorder(outside, *loops, vector)
    schedule.vectorize(vector)
    return schedule.mod["main"]


def ran(function: Any, *arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The last array after a program has run on all; compiled as it is."""
    return called(library(function), *arrays)


def library(function: Any) -> Any:
    """A program, compiled as it is."""
    import tvm

    from spaces.targets.target import parse_target, resolve_target

    target = parse_target(resolve_target("llvm", cores=1))
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return tvm.compile(module, target=target)


def called(compiled: Any, *arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The last array after a compiled program has run on all."""
    import tvm

    tensors = [tvm.runtime.tensor(a) for a in arrays]
    compiled["main"](*tensors)
    result: np.ndarray[Any, Any] = tensors[-1].numpy()
    return result


def matrix(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def nothing(*shape: int) -> np.ndarray[Any, Any]:
    return np.full(shape, np.nan, dtype="float32")


class TestTransposes:
    @pytest.mark.each_value
    @pytest.mark.parametrize("lanes", [4, 8, 16])
    @pytest.mark.parametrize(("rows", "columns"), [(16, 8), (32, 24), (48, 12)])
    def test_squares_are_shuffled_and_the_copy_is_the_same(
        self, lanes: int, rows: int, columns: int
    ) -> None:
        from spaces.passes.transposes import with_transposes

        function = scheduled(copy(rows, columns, across=True), lanes=lanes, along=1)
        changed = with_transposes(function)
        assert "Shuffle" in changed.script()
        a = matrix(rows, columns)
        np.testing.assert_array_equal(ran(changed, a, nothing(columns, rows)), a.T)

    def test_what_lies_beyond_is_zero_and_never_read(self) -> None:
        from spaces.passes.transposes import with_transposes

        function = scheduled(copy(13, 16, across=True, pad=(16, 16)), lanes=8, along=1)
        changed = with_transposes(function)
        a = matrix(13, 16)
        got = ran(changed, a, nothing(16, 16))
        np.testing.assert_array_equal(got, np.pad(a, ((0, 3), (0, 0))).T)
        assert "Shuffle" in changed.script()

    def test_a_copy_along_rows_stays(self) -> None:
        from spaces.passes.transposes import with_transposes

        function = scheduled(copy(16, 32, across=False), lanes=8, along=1)
        assert with_transposes(function).same_as(function)

    def test_so_does_one_whose_depth_is_padded_or_no_multiple(self) -> None:
        from spaces.passes.transposes import with_transposes

        for program in (
            copy(16, 13, across=True, pad=(16, 16)),
            copy(16, 6, across=True),
        ):
            function = scheduled(program, lanes=8, along=1)
            assert with_transposes(function).same_as(function)


@lru_cache
def copied_raggedly() -> Any:
    """A copy of rows of any length, compiled."""
    from tvm import tirx

    from spaces.passes.vector_tails import with_ragged_ends

    columns = tirx.Var("T", "int64")
    rows = tirx.const(5, "int64")
    function = scheduled(copy(rows, columns, across=False), lanes=8, along=1)
    changed = with_ragged_ends(function)
    assert not changed.same_as(function)
    return library(changed)


@lru_cache
def scaled_under_masks(lanes: int) -> Any:
    """`scaled` for rows of any length, compiled."""
    from tvm import tirx

    from spaces.passes.vector_tails import with_ragged_ends

    function = scheduled(scaled(tirx.Var("T", "int64")), lanes=lanes, along=1)
    changed = with_ragged_ends(function)
    assert {"llvm.masked.store", "llvm.masked.load"} <= set(changed.script().split('"'))
    return library(changed)


@lru_cache
def doubled_for_positive_sizes() -> Any:
    from spaces.passes.nonempty import for_positive_sizes

    return library(for_positive_sizes(doubled_in_tiles()))


class TestRaggedEnds:
    @pytest.mark.parametrize("size", SIZES)
    def test_whole_vectors_and_the_rest(self, size: int) -> None:
        a = matrix(5, size)
        np.testing.assert_array_equal(called(copied_raggedly(), a, nothing(5, size)), a)

    @pytest.mark.each_value
    @pytest.mark.parametrize("lanes", [4, 8, 16])
    @pytest.mark.parametrize("size", SIZES)
    def test_the_rest_of_plain_arithmetic_is_written_under_a_mask(
        self, size: int, lanes: int
    ) -> None:
        a, scale, shift = matrix(5, size), matrix(5), matrix(size)
        got = called(scaled_under_masks(lanes), a, scale, shift, nothing(5, size))
        np.testing.assert_allclose(got, np.maximum(a * scale[:, None] + shift, 0), atol=1e-6)

    def test_of_other_arithmetic_element_by_element(self) -> None:
        from tvm import te, tirx

        from spaces.passes.vector_tails import with_ragged_ends

        columns = tirx.Var("T", "int64")
        given = te.placeholder((tirx.const(5, "int64"), columns), name="A")
        made = te.compute(given.shape, lambda i, j: te.exp(given[i, j]), name="B")
        function = scheduled(te.create_prim_func([given, made]), lanes=8, along=1)
        changed = with_ragged_ends(function)
        assert "masked" not in changed.script()
        a = matrix(5, 13)
        np.testing.assert_allclose(ran(changed, a, nothing(5, 13)), np.exp(a), rtol=1e-6)

    def test_a_vector_without_a_condition_stays(self) -> None:
        from spaces.passes.vector_tails import with_ragged_ends

        function = scheduled(copy(5, 32, across=False), lanes=8, along=1)
        assert with_ragged_ends(function).same_as(function)


class TestPositiveSizes:
    @pytest.mark.parametrize("size", SIZES)
    def test_it_computes_the_same_for_any_size(self, size: int) -> None:
        a = matrix(size, 24)
        got = called(doubled_for_positive_sizes(), a, nothing(size, 24))
        np.testing.assert_array_equal(got, a * 2)

    def test_conditions_that_always_hold_are_gone(self) -> None:
        from spaces.passes.nonempty import for_positive_sizes

        before, after = doubled_in_tiles(), for_positive_sizes(doubled_in_tiles())
        assert " or " in before.script()
        assert " or " not in after.script()

    def test_the_rest_of_a_division_is_below_what_was_divided_by(self) -> None:
        """As the place in a row of tiles is, of a loop that was fused over all of them."""
        from tvm import te, tirx
        from tvm.s_tir import Schedule

        from spaces.passes.nonempty import for_positive_sizes

        rows = tirx.Var("T", "int64")
        given = te.placeholder((rows, rows), name="A")
        made = te.compute((rows, rows), lambda i, j: given[i, j] * 2, name="B")
        schedule = Schedule(te.create_prim_func([given, made]))
        block = schedule.get_sblock("B")
        i, j = schedule.get_loops(block)
        outer, _ = schedule.split(j, [None, 8])
        schedule.fuse(i, outer)
        tiles = (rows + 7) // 8
        held = for_positive_sizes(_where(schedule.mod["main"], lambda n, _: n % tiles < tiles))
        assert held.script().count("<") == for_positive_sizes(schedule.mod["main"]).script().count(
            "<"
        )

    def test_a_choice_that_is_always_the_same_is_decided(self) -> None:
        """As those are that TVM writes where a region may end before it begins."""
        from tvm import te, tirx
        from tvm.s_tir import Schedule

        from spaces.passes.nonempty import for_positive_sizes

        rows = tirx.Var("T", "int64")
        given = te.placeholder((rows,), name="A")
        made = te.compute((rows,), lambda i: given[i] * 2, name="B")
        schedule = Schedule(te.create_prim_func([given, made]))
        (i,) = schedule.get_loops(schedule.get_sblock("B"))
        schedule.split(i, [None, 24])
        tiles, zero, one = (rows + 23) // 24, tirx.const(0, "int64"), tirx.const(1, "int64")
        before = schedule.mod["main"]
        plain = for_positive_sizes(before).script()

        def always(n: Any, i: Any) -> Any:
            first, last = tirx.Min(zero, tiles * 24 - 1), tirx.Max(tiles - one, zero)
            return first + (n * 24 + i) <= last * 24 + 23

        def at_times(n: Any, i: Any) -> Any:
            first, last = tirx.Min(zero, rows - 5), tirx.Max(tiles - 2, zero)
            return first + (n * 24 + i) <= last * 24 + 23

        assert for_positive_sizes(_where(before, always)).script() == plain
        assert for_positive_sizes(_where(before, at_times)).script() != plain

    def test_a_sum_over_nothing_is_still_written(self) -> None:
        from tvm import te, tirx

        from spaces.passes.nonempty import for_positive_sizes

        depth = tirx.Var("K", "int64")
        n, zero = tirx.const(4, "int64"), tirx.const(0, "int64")
        given = te.placeholder((n, depth), name="A")
        k = te.reduce_axis((zero, depth), "k")
        made = te.compute((n,), lambda i: te.sum(given[i, k], k), name="B")
        function = te.create_prim_func([given, made])
        assert for_positive_sizes(function).same_as(function)

    def test_programs_of_known_sizes_stay(self) -> None:
        from spaces.passes.nonempty import for_positive_sizes

        function = copy(4, 8, across=True)
        assert for_positive_sizes(function).same_as(function)


def _where(function: Any, condition: Callable[..., Any]) -> Any:
    """The program with another condition on its block, of the loops around it."""
    import tvm
    from tvm_ffi import structural_mutate

    root = function.body
    loops: list[Any] = []

    def loop(node: Any, mutator: Any) -> Any:
        loops.append(node.loop_var)
        return mutator.default_mutate(node)

    def realize(node: Any, mutator: Any) -> Any:
        if not loops:
            return mutator.default_mutate(node)
        both = tvm.tirx.And(node.predicate, condition(*loops))
        return tvm.s_tir.SBlockRealize(node.iter_values, both, node.block)

    kinds = [(tvm.tirx.For, loop), (tvm.s_tir.SBlockRealize, realize)]
    return function.with_body(structural_mutate(root, kinds))


def doubled_in_tiles() -> Any:
    """Twice a matrix of symbolic height, through a tile that is made where it is used."""
    from tvm import te, tirx
    from tvm.s_tir import Schedule

    rows, columns = tirx.Var("T", "int64"), tirx.const(24, "int64")
    given = te.placeholder((rows, columns), name="A")
    padded = (rows + 7) // 8 * 8

    def grown(i: Any, j: Any) -> Any:
        return tirx.if_then_else(i < rows, given[i, j], tirx.const(0.0, "float32"))

    kept = te.compute((padded, columns), grown, name="kept")
    made = te.compute((rows, columns), lambda i, j: kept[i, j] + kept[i, j], name="B")
    schedule = Schedule(te.create_prim_func([given, made]))
    i, _ = schedule.get_loops(schedule.get_sblock("kept"))
    outside, _ = schedule.split(i, [None, 8])
    schedule.reverse_compute_at(schedule.get_sblock("B"), outside)
    return schedule.mod["main"]


@settings(deadline=None, max_examples=examples(40))
@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    lanes=st.sampled_from([4, 8, 16]),
    across=st.booleans(),
    along=st.integers(0, 1),
)
def test_any_copy_is_the_same_after_all_of_them(
    rows: int, columns: int, lanes: int, across: bool, along: int
) -> None:
    from tvm import tirx

    from spaces.passes.nonempty import for_positive_sizes
    from spaces.passes.transposes import with_transposes
    from spaces.passes.vector_tails import with_ragged_ends

    height = tirx.Var("T", "int64")
    function = scheduled(
        copy(height, tirx.const(columns, "int64"), across=across), lanes=lanes, along=along
    )
    changed = with_ragged_ends(with_transposes(for_positive_sizes(function)))
    a = matrix(rows, columns)
    want = a.T if across else a
    np.testing.assert_array_equal(ran(changed, a, nothing(*want.shape)), want)


def test_a_block_that_binds_variables_of_its_own_stays() -> None:
    from tvm import te, tirx
    from tvm.tirx import Let, Var

    from spaces.passes.vector_tails import with_ragged_ends

    size = tirx.Var("T", "int64")
    given = te.placeholder((size,), name="A")

    def squared(i: Any) -> Any:
        known = Var("x", "float32")
        return Let(known, given[i], known * known)

    made = te.compute((size,), squared, name="B")
    function = scheduled(te.create_prim_func([given, made]), lanes=8, along=0)
    assert with_ragged_ends(function).same_as(function)
