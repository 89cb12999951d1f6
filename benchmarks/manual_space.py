"""A program that a person schedules better than rules and micro-kernels do: two layers in one.

    tuner tune benchmarks/manual_space.py:program --space benchmarks/manual_space.py --trials 32

No micro-kernel is made for two products in one program, and rules find their way slowly. By hand
both layers are computed for a strip of rows at a time, each in tiles that stay in registers.
"""

from __future__ import annotations

from typing import Any

from tuner import space

_ROWS, _COLUMNS = 8, 32


def program(rows: int = 1024, width: int = 128, hidden: int = 256) -> Any:
    """relu(relu(x a) b)."""
    from tvm import te

    x = te.placeholder((rows, width), name="x")
    a = te.placeholder((width, hidden), name="a")
    b = te.placeholder((hidden, width), name="b")
    r, s = te.reduce_axis((0, width), "r"), te.reduce_axis((0, hidden), "s")
    first = te.compute(
        (rows, hidden), lambda i, j: te.sum(x[i, r] * a[r, j], axis=r), name="first_sum"
    )
    inner = te.compute((rows, hidden), lambda i, j: te.max(first[i, j], 0.0), name="first")
    second = te.compute(
        (rows, width), lambda i, j: te.sum(inner[i, s] * b[s, j], axis=s), name="second_sum"
    )
    out = te.compute((rows, width), lambda i, j: te.max(second[i, j], 0.0), name="second")
    return te.create_prim_func([x, a, b, out])


@space.manual
def in_strips(sch: Any) -> None:
    """Strips of a few rows: the first layer's are made where the second needs them."""
    i, _ = sch.get_loops(sch.get_sblock("second"))
    strip, _ = sch.split(i, [None, _ROWS])
    sch.parallel(strip)  # while each block still computes whole elements
    sums = [_in_tiles(sch, "second")]
    sch.compute_at(sch.get_sblock("first"), strip)
    sums.append(_in_tiles(sch, "first"))
    for block, step in sums:
        sch.decompose_reduction(block, step)


def _in_tiles(sch: Any, layer: str) -> tuple[Any, Any]:
    """A layer's rows in tiles of columns, whose sums are made in registers: their block, and the
    loop over their steps."""
    *_, i, j = sch.get_loops(sch.get_sblock(layer))
    tile, near = sch.split(j, [None, _COLUMNS])
    sch.reorder(tile, i, near)
    sch.vectorize(near)
    sums = sch.get_sblock(f"{layer}_sum")
    sch.compute_at(sums, tile)
    *_, i, j, step = sch.get_loops(sums)
    sch.reorder(step, i, j)
    sch.unroll(i)
    sch.vectorize(j)
    return sums, step


SPACE = space.union(in_strips, space.ours())
