"""A program made from knobs, in place of a schedule: a sum in parts that are added up at the end.

    tuner tune examples/own_program.py:program --space examples/own_program.py

No schedule of the program has its parts. What the function returns is compared with the program it
stands for, like any other candidate.
"""

from __future__ import annotations

from typing import Any

from tuner import space


def program(m: int = 4, n: int = 256, k: int = 8192) -> Any:
    """A B^T, in float32: A is m by k, B is n by k."""
    from tvm import te

    a, b = te.placeholder((m, k), name="A"), te.placeholder((n, k), name="B")
    r = te.reduce_axis((0, k), name="r")
    product = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[j, r], axis=r), name="product")
    return te.create_prim_func([a, b, product])


def fits(parts: int, width: int) -> bool:
    """Whether a part has a whole number of vectors."""
    return parts * width <= 4096


@space.program(knobs={"parts": (1, 2, 4, 8, 16, 32), "width": (8, 16, 32, 64)}, where=fits)
def in_parts(given: Any, parts: int, width: int) -> Any:
    """The same product, each sum in so many vectors of partial sums.

    Args:
        parts: vectors that are summed side by side.
        width: elements of a vector.
    """
    from tvm import te
    from tvm.s_tir import Schedule

    shapes = [[int(n) for n in p.ty.shape] for p in given.params]
    (m, k), (n, _), _ = shapes
    a, b = te.placeholder((m, k), name="A"), te.placeholder((n, k), name="B")
    lanes = parts * width
    step, lane = te.reduce_axis((0, k // lanes), name="s"), te.reduce_axis((0, lanes), name="l")
    partial = te.compute(
        (m, n, lanes),
        lambda i, j, v: te.sum(a[i, step * lanes + v] * b[j, step * lanes + v], axis=step),
        name="partial",
    )
    product = te.compute((m, n), lambda i, j: te.sum(partial[i, j, lane], axis=lane), name="sums")
    schedule = Schedule(te.create_prim_func([a, b, product]))
    total, part = schedule.get_sblock("sums"), schedule.get_sblock("partial")
    i, j, _ = schedule.get_loops(total)
    schedule.reorder(j, i)
    schedule.parallel(j)
    schedule.compute_at(part, i)
    *_, v, s = schedule.get_loops(part)
    outer, inner = schedule.split(v, [None, width])
    schedule.reorder(s, outer, inner)
    schedule.unroll(outer)
    schedule.vectorize(inner)
    schedule.decompose_reduction(part, s)
    return schedule.mod["main"]


SPACE = space.union(in_parts, space.ours())
