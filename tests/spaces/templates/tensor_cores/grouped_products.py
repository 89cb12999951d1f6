"""Products of a mixture of experts: rows by the matrices that they look up, in every layout."""

from __future__ import annotations

from typing import Any

from tests.spaces.templates.tensor_cores.products import Programs, Sizes

_F32 = "float32"


def grouped(s: Sizes, *, turned: bool = False, kind: str = "bfloat16", scaled: bool = False) -> Any:
    """Rows by matrices of as many groups as the batch has, as frontends write it.

    Args:
        turned: whether terms lie next to one another in the matrices.
        scaled: whether a number of its own multiplies each row, as the weight of an expert does.
    """
    from tvm import te, tirx

    m = te.var("m", "int64") if s.m == "m" else s.m
    n, k, e = (tirx.const(x, "int64") if s.m == "m" else x for x in (s.n, s.k, s.batch))
    x = te.placeholder((m, k), kind, name="x")
    w = te.placeholder((e, n, k) if turned else (e, k, n), kind, name="w")
    groups = te.placeholder((m,), "int32", name="groups")
    scales = te.placeholder((m,), kind, name="scales")
    r = te.reduce_axis((0, k), "r")

    def multiply(i: Any, j: Any) -> Any:
        matrix = tirx.min(groups[i], s.batch - 1)
        factor = w[matrix, j, r] if turned else w[matrix, r, j]
        return te.sum(x[i, r].astype(_F32) * factor.astype(_F32), r)

    def finish(i: Any, j: Any) -> Any:
        value = total[i, j].astype(kind)
        known = groups[i] < s.batch
        return tirx.Select(known, value * scales[i] if scaled else value, tirx.const(0, kind))

    total = te.compute((m, n), multiply, "c")
    out = te.compute((m, n), finish, "d")
    return te.create_prim_func([x, w, groups, *([scales] if scaled else []), out])


def narrow(s: Sizes) -> Any:
    """In float16, by matrices of (terms, columns)."""
    return grouped(s, kind="float16")


def turned(s: Sizes) -> Any:
    """By matrices of (columns, terms), as models keep them."""
    return grouped(s, turned=True)


def weighted(s: Sizes) -> Any:
    """Scaled by the weights of experts."""
    return grouped(s, turned=True, scaled=True)


PROGRAMS: Programs = {
    "weighted": (weighted, (Sizes(200, 72, 40, 8),)),
    "one row": (turned, (Sizes(1, 264, 136, 8),)),
    "NN": (narrow, (Sizes(333, 136, 72, 3), Sizes(70, 264, 40, 64))),
    "NT": (turned, (Sizes(333, 72, 136, 8), Sizes(150, 136, 64, 1))),
    "odd NN": (narrow, (Sizes(77, 75, 131, 3),)),
    "odd NT": (turned, (Sizes(130, 71, 77, 5),)),
    "open rows": (turned, (Sizes("m", 136, 72, 5), Sizes("m", 72, 40, 64))),
    "open NN": (narrow, (Sizes("m", 72, 136, 3),)),
}
"""Of more groups than some have rows, so that many have none, and of one."""
