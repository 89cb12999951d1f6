"""What is decided of a contraction before TVM is asked: roles of axes, knobs, limits, estimates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spaces.targets.cpu import Cpu
from spaces.templates.contraction import register_tile as k
from spaces.templates.contraction.knob_model import choices_of, costs_s, estimate, feasible, tiling
from spaces.templates.contraction.roles import roles
from spaces.templates.contraction.shape import Axis, Contraction, Operand

CPU = Cpu(
    vector_bytes=64, registers=32, cores=2, l1_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=16 << 20
)


def spatial(extent: int, out_dim: int, *operands: tuple[int | None, int] | None) -> Axis:
    """An axis of the result; for each operand its dimension and its step, or None."""
    dims = tuple(None if o is None else o[0] for o in operands)
    steps = tuple(0 if o is None else o[1] for o in operands)
    used = tuple(o is not None for o in operands)
    return Axis(extent, False, out_dim, dims, used, steps)  # type: ignore[arg-type]


def gemm(m: int, n: int, depth: int, *, tb: bool = False) -> Contraction:
    """Rows times columns, the second operand transposed or not."""
    column = (0, depth) if tb else (1, 1)
    axes = (
        spatial(m, 0, (0, depth), None),
        spatial(n, 1, None, column),
        Axis(depth, True, None, (1, 1 if tb else 0), (True, True), (1, 1 if tb else n)),
    )
    operands = (
        Operand((m, depth), 32, False, False),
        Operand((n, depth) if tb else (depth, n), 32, False, False),
    )
    return Contraction(
        axes=axes,
        operands=operands,
        column=1,
        rows=(0,),
        outer=(),
        columns_of=1,
        plain=True,
        out_dims=2,
        out_bits=32,
        epilogue=False,
        epilogue_keeps_shape=True,
    )


def columns(c: Contraction, **knobs: int) -> dict[str, np.ndarray]:
    """One setting: the usual one, but for some knobs."""
    usual = {
        k.ROWS: 8,
        k.VECTORS: 2,
        k.LANES: 16,
        k.UNROLL: 4,
        k.ROW_BLOCK: 1,
        k.COLUMN_BLOCK: 1,
        k.OUTER_BLOCK: 1,
        k.COLUMNS_FIRST: 0,
        k.PACK_ROWS: 0,
        k.PACK_COLUMNS: 1,
        k.STAGE_INSIDE: 0,
    }
    return {name: np.array([value]) for name, value in {**usual, **knobs}.items()}


def is_feasible(c: Contraction, **knobs: int) -> bool:
    return bool(feasible(c, CPU, columns(c, **knobs))[0])


def cost(c: Contraction, **knobs: int) -> float:
    return float(costs_s(c, CPU, columns(c, **knobs))[0])


def test_a_product_has_columns_in_either_operand() -> None:
    c = gemm(64, 64, 64)
    assert roles(c.axes, c.operands) == [(1, 1, (0,), ()), (0, 0, (1,), ())]


def test_rows_that_follow_one_another_are_one_long_row() -> None:
    axes = (
        spatial(7, 0, (0, 35), None),
        spatial(5, 1, (1, 7), None),
        spatial(16, 2, None, (1, 1)),
        Axis(7, True, None, (2, 0), (True, True), (1, 16)),
    )
    operands = (Operand((7, 5, 7), 32, False, False), Operand((7, 16), 32, False, False))
    assert roles(axes, operands)[0] == (2, 1, (0, 1), ())
    apart = (Operand((7, 6, 7), 32, False, False), operands[1])
    assert roles(axes, apart)[0] == (2, 1, (1,), (0,))


def test_what_both_operands_depend_on_stays_outside() -> None:
    axes = (
        spatial(3, 0, (0, 40), (0, 64)),
        spatial(5, 1, (1, 8), None),
        spatial(8, 2, None, (2, 1)),
        Axis(8, True, None, (2, 1), (True, True), (1, 8)),
    )
    operands = (Operand((3, 5, 8), 32, False, False), Operand((3, 8, 8), 32, False, False))
    assert roles(axes, operands)[0] == (2, 1, (1,), (0,))


def test_a_depthwise_convolution_has_channels_or_pixels_as_columns() -> None:
    last = (
        spatial(14, 0, (None, 512), None),
        spatial(32, 1, (1, 1), (1, 1)),
        Axis(3, True, None, (None, 0), (True, True), (32, 32)),
    )
    operands = (Operand((16, 32), 32, False, True), Operand((3, 32), 32, True, False))
    assert roles(last, operands) == [(1, 1, (0,), ())]
    first = (
        spatial(32, 0, (0, 256), (0, 3)),
        spatial(9, 1, (None, 16), None),
        spatial(14, 2, (None, 1), None),
        Axis(3, True, None, (None, 1), (True, True), (1, 1)),
    )
    operands = (Operand((32, 16, 16), 32, False, True), Operand((32, 3), 32, True, False))
    # A window slides along the rows too: its elements and the weights are used again.
    assert roles(first, operands) == [(2, 0, (1,), (0,))]


def test_an_axis_of_one_step_has_no_role() -> None:
    c = gemm(1, 64, 64)
    assert roles(c.axes, c.operands) == [(1, 1, (), ())]


@pytest.mark.parametrize(("m", "n", "depth"), [(64, 64, 64), (61, 127, 33), (1, 1, 1), (3, 999, 7)])
def test_tiles_cover_all_and_blocks_hold_whole_tiles(m: int, n: int, depth: int) -> None:
    c = gemm(m, n, depth)
    for rows in (1, 5, 12):
        for block in (1, 3, k.ALL):
            knobs = {key: int(v[0]) for key, v in columns(c, rows=rows, row_block=block).items()}
            t = tiling(c, knobs)
            assert t.padded_rows >= m
            assert t.padded_columns >= n
            assert t.padded_depth >= depth
            assert t.row_tiles % t.row_block == 0
            assert t.padded_rows == t.row_tiles * rows
            assert t.chunks == (t.row_tiles // t.row_block) * (t.column_tiles // t.column_block)


def test_a_register_tile_fits_the_registers() -> None:
    c = gemm(512, 512, 512)
    assert is_feasible(c, rows=12, vectors=2)
    assert is_feasible(c, rows=14, vectors=2) is (CPU.registers >= 14 * 2 + 2 + 1)
    assert not is_feasible(c, rows=16, vectors=2)
    small = replace(CPU, registers=16)
    assert not feasible(c, small, columns(c, rows=12, vectors=2))[0]


def test_what_cannot_be_padded_divides() -> None:
    c = replace(gemm(12, 96, 64), plain=False)
    assert is_feasible(c, rows=6, vectors=3)
    assert not is_feasible(c, rows=5, vectors=3)
    assert not is_feasible(c, rows=6, vectors=4)


def test_padding_has_a_limit() -> None:
    c = gemm(9, 512, 512)
    assert is_feasible(c, rows=9)
    assert not is_feasible(c, rows=8)


def test_a_large_program_has_work_for_every_core() -> None:
    c = gemm(512, 512, 512)
    assert not is_feasible(c, row_block=k.ALL, column_block=k.ALL)
    assert is_feasible(gemm(16, 64, 16), row_block=k.ALL, column_block=k.ALL)


def test_every_knob_has_a_value() -> None:
    for c in (gemm(1, 7, 1), gemm(64, 64, 64), replace(gemm(13, 28, 5), plain=False)):
        assert all(choices_of(c, CPU).values())


def test_columns_that_no_vector_divides_have_no_lanes() -> None:
    assert choices_of(replace(gemm(13, 29, 5), plain=False), CPU)[k.LANES] == ()


def test_columns_that_do_not_follow_one_another_are_packed() -> None:
    assert choices_of(gemm(64, 64, 64), CPU)[k.PACK_COLUMNS] == (0, 1)
    assert choices_of(gemm(64, 64, 64, tb=True), CPU)[k.PACK_COLUMNS] == (1,)


def test_vectors_may_be_as_wide_as_a_row_that_no_usual_width_divides() -> None:
    c = replace(gemm(8, 14, 9), plain=False)
    assert choices_of(c, CPU)[k.LANES] == (14,)
    assert choices_of(replace(gemm(8, 56, 9), plain=False), CPU)[k.LANES] == (14, 8, 4)
    assert choices_of(replace(gemm(8, 64, 9), plain=False), CPU)[k.LANES] == (16, 8, 4)


def test_the_estimate_grows_with_the_work() -> None:
    costs = [cost(gemm(m, 512, 512)) for m in (64, 128, 256, 1024)]
    assert costs == sorted(costs)
    assert costs[-1] > 8 * costs[0]
    depths = [cost(gemm(256, 256, depth)) for depth in (32, 64, 512)]
    assert depths == sorted(depths)


def test_the_estimate_prefers_full_tiles_and_shared_work() -> None:
    c = gemm(512, 512, 512)
    assert cost(c, rows=12) < cost(c, rows=2)
    assert cost(c, lanes=16) < cost(c, lanes=4)
    assert costs_s(c, replace(CPU, cores=1), columns(c))[0] > cost(c)
    assert np.isinf(cost(c, rows=28, vectors=6))


def test_what_is_packed_beyond_a_cores_cache_costs_its_way_there_and_back() -> None:
    depth = 512
    fits = CPU.l2_bytes * CPU.cores // (4 * depth)

    def packing(width: int) -> float:
        c = gemm(64, width, depth)
        return float(estimate(c, CPU, columns(c)).packing[0])

    within = packing(fits) - packing(fits // 2)
    beyond = packing(2 * fits) - packing(fits)
    assert beyond > 3 * within


def test_columns_that_are_not_there_cost_less_to_pack_than_those_that_are() -> None:
    width = 2 * 16

    def packing(n: int) -> float:
        """Of 512 steps of the sum, without what the threads wait for each other."""
        deep, flat = (gemm(64, n, depth, tb=True) for depth in (1024, 512))
        found = [estimate(c, CPU, columns(c, pack_columns=1)).packing[0] for c in (deep, flat)]
        return float(found[0] - found[1])

    whole, mostly_blank = packing(width), packing(width // 8)
    assert 0.25 * whole < mostly_blank < 0.5 * whole
