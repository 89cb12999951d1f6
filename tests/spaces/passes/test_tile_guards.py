"""Tiles of a symbolic number of rows: the same results, with room for one tile, and no questions in
its sums."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from spaces.passes.tile_marks import CLAMPED, SKIPPED, TILE, VERSIONED

pytestmark = pytest.mark.tvm

SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 23, 24, 25)


def tiled_product(way: int | None = VERSIONED) -> Any:
    """(T, 6) times (6, 5) in tiles of four rows, two tiles to a block, blocks side by side."""
    from tvm import te, tirx
    from tvm.s_tir import Schedule

    rows = tirx.Var("T", "int64")
    depth, columns = tirx.const(6, "int64"), tirx.const(5, "int64")
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((tirx.const(0, "int64"), depth), "k")
    made = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="C")
    schedule = Schedule(te.create_prim_func([a, b, made]))
    main = schedule.get_sblock("C")
    kept = schedule.cache_write(main, 0, "local")
    i, j, k = schedule.get_loops(main)
    block, tile, row = schedule.split(i, [None, 2, 4])
    schedule.reorder(block, tile, k, row, j)
    schedule.reverse_compute_at(kept, tile)
    schedule.decompose_reduction(main, k)
    if way is not None:
        schedule.annotate(tile, TILE, way)
    return schedule.mod["main"]


def library(function: Any) -> Any:
    import tvm

    from spaces.targets.target import parse_target, resolve_target

    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return tvm.compile(module, target=parse_target(resolve_target("llvm", cores=1)))


def ran(compiled: Any, rows: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What a compiled program makes of some rows, and what it should."""
    import tvm

    rng = np.random.default_rng(rows)
    a = rng.standard_normal((rows, 6)).astype("float32")
    b = rng.standard_normal((6, 5)).astype("float32")
    out = tvm.runtime.tensor(np.full((rows, 5), np.nan, "float32"))
    compiled["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
    return out.numpy(), a @ b


def conditions(statement: Any) -> int:
    """How many blocks within a statement are carried out under a condition."""
    import tvm
    import tvm_ffi

    from spaces.ir import tvm_compat

    found = []

    def look(realize: Any) -> None:
        if tvm_compat.as_int(realize.predicate) != 1:
            found.append(realize)

    tvm_ffi.structural_walk(statement, (tvm.s_tir.SBlockRealize, look))
    return len(found)


def sums_within(statement: Any) -> bool:
    """Whether a statement adds something up."""
    import tvm
    import tvm_ffi

    from spaces.templates.contraction.match import sums

    found = []
    tvm_ffi.structural_walk(statement, (tvm.s_tir.SBlock, lambda b: found.append(sums(b)) or None))
    return any(found)


def question(function: Any, *, forks: bool = True) -> Any:
    """The condition in front of a tile that has another way, or the one in front of a tile that
    need not be there at all."""
    import tvm
    import tvm_ffi

    def look(node: Any) -> Any:
        found = (node.else_case is not None) == forks
        return tvm_ffi.VisitInterrupt(node) if found else None

    return tvm_ffi.structural_walk(function.body, (tvm.tirx.IfThenElse, look)).value


def changed(way: int | None = VERSIONED) -> Any:
    """The program after both passes."""
    from spaces.passes.tile_accumulators import with_tile_sums
    from spaces.passes.tile_guards import with_whole_tiles

    return with_whole_tiles(with_tile_sums(tiled_product(way)))


def local_shapes(function: Any) -> list[list[int | None]]:
    """Of tensors that only one tile uses."""
    import tvm
    import tvm_ffi

    from spaces.ir import tvm_compat

    found: list[list[int | None]] = []

    def look(block: Any) -> None:
        buffers = [buffer for buffer in block.alloc_buffers if buffer.scope() == "local"]
        found.extend([tvm_compat.as_int(size) for size in buffer.shape] for buffer in buffers)

    tvm_ffi.structural_walk(function.body, (tvm.s_tir.SBlock, look))
    return found


@lru_cache
def library_after_both(way: int) -> Any:
    return library(changed(way))


@lru_cache
def library_after_one() -> Any:
    from spaces.passes.tile_guards import with_whole_tiles

    return library(with_whole_tiles(tiled_product()))


@pytest.mark.each_value
@pytest.mark.parametrize("way", [VERSIONED, CLAMPED])
@pytest.mark.parametrize("rows", SIZES)
def test_any_number_of_rows_is_computed(rows: int, way: int) -> None:
    got, want = ran(library_after_both(way), rows)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_sums_have_room_for_one_tile() -> None:
    from spaces.passes.tile_accumulators import with_tile_sums

    assert local_shapes(tiled_product()) == [[None, 5]]
    assert local_shapes(with_tile_sums(tiled_product())) == [[4, 5]]


def test_a_whole_tile_asks_nothing_and_the_last_only_what_it_writes() -> None:
    asked = question(changed())
    assert conditions(asked.then_case) == 0
    assert conditions(asked.else_case) == 1


def test_tiles_that_look_their_rows_up_are_written_down_once() -> None:
    repeated = changed(CLAMPED)
    assert conditions(repeated.body) == 1
    assert conditions(question(repeated, forks=False).then_case) == 1


def test_a_last_tile_whose_sums_are_not_its_own_asks_for_each_row() -> None:
    from spaces.passes.tile_guards import with_whole_tiles

    asked = question(with_whole_tiles(tiled_product()))
    assert conditions(asked.then_case) == 0
    assert conditions(asked.else_case) == 3, "the start of the sum, the sum, and writing it"


@pytest.mark.parametrize("rows", SIZES)
def test_it_is_right_all_the_same(rows: int) -> None:
    got, want = ran(library_after_one(), rows)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_the_mark_is_gone_and_a_program_without_one_stays() -> None:
    from spaces.passes.tile_accumulators import with_tile_sums
    from spaces.passes.tile_guards import with_whole_tiles

    assert TILE not in changed().script()
    plain = tiled_product(None)
    assert with_whole_tiles(plain).same_as(plain)
    assert with_tile_sums(plain).same_as(plain)


@pytest.mark.parametrize("way", [VERSIONED, CLAMPED])
def test_a_program_can_be_compiled_after_all_that_is_done_for_a_cpu(way: int) -> None:
    import tvm

    from spaces.passes.cpu_passes import before_compile

    module = before_compile(tvm.IRModule({"main": tiled_product(way)}))
    got, want = ran(library(module["main"]), 23)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def padded_product(parts: int) -> Any:
    """(T, 6) times (6, 5), rows in tiles of four that are padded, so many parts of a tile apart."""
    from tvm import te, tirx
    from tvm.s_tir import Schedule

    rows, tiles = tirx.Var("T", "int64"), tirx.Var("tiles", "int64")
    a, b = te.placeholder((tiles, 4, 6), name="A"), te.placeholder((6, 5), name="B")
    k = te.reduce_axis((0, 6), "k")
    made = te.compute(
        (tiles * 4, 5), lambda i, j: te.sum(a[i // 4, i % 4, k] * b[k, j], k), name="C"
    )
    kept = te.compute((rows, 5), lambda i, j: made[i, j], name="kept")
    schedule = Schedule(te.create_prim_func([a, b, kept]))
    main = schedule.get_sblock("C")
    schedule.set_scope(main, 0, "local")
    i, j, k = schedule.get_loops(main)
    _, part, row = schedule.split(i, [None, parts, 4 // parts])
    schedule.reorder(part, k, row, j)
    schedule.reverse_compute_at(schedule.get_sblock("kept"), part, preserve_unit_loops=True)
    schedule.annotate(part, TILE, SKIPPED)
    return schedule.mod["main"]


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_parts_of_a_tile_that_only_pad_are_left_out(parts: int) -> None:
    """Values are those of rows that are there, and one test stands before all that a part does."""
    import tvm

    from spaces.passes.cpu_passes import before_compile
    from spaces.passes.tile_guards import with_whole_tiles

    module = before_compile(tvm.IRModule({"main": padded_product(parts)}))
    assert TILE not in module.script()
    compiled = library(module["main"])
    for rows in SIZES[1:]:
        a, b = np.full((-(-rows // 4), 4, 6), np.nan, "float32"), np.ones((6, 5), "float32")
        a.reshape(-1, 6)[:rows] = rows
        out = tvm.runtime.tensor(np.zeros((rows, 5), "float32"))
        compiled["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
        assert (out.numpy() == 6 * rows).all()
    asked = question(with_whole_tiles(padded_product(parts)), forks=False)
    assert conditions(asked.then_case) == 1
    assert sums_within(asked.then_case)
