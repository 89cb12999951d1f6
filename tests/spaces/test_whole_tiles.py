"""Tiles that are asked once for being whole: the same results, nothing asked within a whole one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 23, 24, 25)


def tiled_product(*, mark: bool = True) -> Any:
    """(T, 6) times (6, 5) in tiles of four rows, two tiles to a block, blocks side by side."""
    from tvm import te, tirx
    from tvm.s_tir import Schedule

    from spaces.whole_tiles import WHOLE_TILES

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
    if mark:
        schedule.annotate(tile, WHOLE_TILES, 1)
    return schedule.mod["main"]


def ran(function: Any, rows: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What a program makes of some rows, and what it should."""
    import tvm

    from spaces.target import parse_target, resolve_target

    rng = np.random.default_rng(rows)
    a = rng.standard_normal((rows, 6)).astype("float32")
    b = rng.standard_normal((6, 5)).astype("float32")
    out = tvm.runtime.tensor(np.full((rows, 5), np.nan, "float32"))
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    library = tvm.compile(module, target=parse_target(resolve_target("llvm", cores=1)))
    library["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
    return out.numpy(), a @ b


def conditions(statement: Any) -> int:
    """How many blocks within a statement are carried out under a condition."""
    import tvm
    import tvm_ffi

    from spaces import names

    found = []

    def look(realize: Any) -> None:
        if names.known_int(realize.predicate) != 1:
            found.append(realize)

    tvm_ffi.structural_walk(statement, (tvm.s_tir.SBlockRealize, look))
    return len(found)


def question(function: Any) -> Any:
    """The condition in front of a tile."""
    import tvm
    import tvm_ffi

    return tvm_ffi.structural_walk(
        function.body, (tvm.tirx.IfThenElse, lambda node: tvm_ffi.VisitInterrupt(node))
    ).value


@pytest.mark.parametrize("rows", SIZES)
def test_any_number_of_rows_is_computed(rows: int) -> None:
    from spaces.whole_tiles import with_whole_tiles

    got, want = ran(with_whole_tiles(tiled_product()), rows)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_whole_tile_asks_nothing_and_the_last_asks_for_each_row() -> None:
    from spaces.whole_tiles import with_whole_tiles

    asked = question(with_whole_tiles(tiled_product()))
    assert conditions(asked.then_case) == 0
    assert conditions(asked.else_case) == 3, "the start of the sum, the sum, and writing it"


def test_the_mark_is_gone_and_a_program_without_one_stays() -> None:
    from spaces.whole_tiles import WHOLE_TILES, with_whole_tiles

    assert WHOLE_TILES not in with_whole_tiles(tiled_product()).script()
    plain = tiled_product(mark=False)
    assert with_whole_tiles(plain).same_as(plain)


def test_a_program_with_it_changed_can_be_compiled_after_what_is_done_for_a_cpu() -> None:
    import tvm

    from spaces.cpu_passes import before_compile

    module = before_compile(tvm.IRModule({"main": tiled_product()}))
    got, want = ran(module["main"], 23)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
