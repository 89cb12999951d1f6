"""Products in halves, in every layout and with what networks do to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spaces.lowering.extract_tasks import task_of
from spaces.targets.target import emulate_target
from tuner.task import Task

HOPPER = emulate_target('{"kind":"cuda","arch":"sm_90a"}')
AMPERE = emulate_target('{"kind":"cuda","arch":"sm_80"}')
_F32 = "float32"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows, columns and terms of a product; how many there are; a size may be a name."""

    m: int | str
    n: int
    k: int
    batch: int = 1


def matmul(s: Sizes, *, nt: bool = False, tn: bool = False, kind: str = "float16") -> Any:
    """A or its transpose by B or its transpose, summed in float32."""
    from tvm import te

    a, b = operands_of(s, nt, tn, kind, kind)
    return te.create_prim_func([a, b, _rounded(kind, sums_of(a, b, nt, tn))])


def in_halves(s: Sizes) -> Any:
    """Summed in float16, as Relax has it where nothing is said; with a bias and ReLU."""
    from tvm import te, tirx

    a, b = operands_of(s, True, False, "float16", "float16")
    bias = te.placeholder((s.n,), "float16", name="bias")
    total = sums_of(a, b, True, False, "float16")
    out = te.compute(
        total.shape, lambda i, j: tirx.max(total[i, j] + bias[j], tirx.const(0, "float16")), "e"
    )
    return te.create_prim_func([a, b, bias, out])


def with_residual(s: Sizes) -> Any:
    """Of tokens in a batch, with a bias and what was there before; bfloat16."""
    from tvm import te

    kind = "bfloat16"
    x = te.placeholder((s.batch, s.m, s.k), kind, name="x")
    w = te.placeholder((s.k, s.n), kind, name="w")
    bias = te.placeholder((s.n,), kind, name="bias")
    before = te.placeholder((s.batch, s.m, s.n), kind, name="before")
    r = te.reduce_axis((0, s.k), "r")
    total = te.compute(
        before.shape, lambda b, i, j: te.sum(x[b, i, r].astype(_F32) * w[r, j].astype(_F32), r), "c"
    )
    out = te.compute(
        before.shape, lambda b, i, j: total[b, i, j].astype(kind) + bias[j] + before[b, i, j], "d"
    )
    return te.create_prim_func([x, w, bias, before, out])


def stacks(s: Sizes, kinds: tuple[str, str], sums: str, *, nt: bool = False) -> list[Any]:
    """Two stacks of matrices, and the products of each with its own, summed in a type."""
    from tvm import te

    x = te.placeholder((s.batch, s.m, s.k), kinds[0], name="x")
    shape = (s.batch, s.n, s.k) if nt else (s.batch, s.k, s.n)
    y = te.placeholder(shape, kinds[1], name="y")
    r = te.reduce_axis((0, s.k), "r")
    total = te.compute(
        (s.batch, s.m, s.n),
        lambda b, i, j: te.sum(
            x[b, i, r].astype(sums) * (y[b, j, r] if nt else y[b, r, j]).astype(sums), r
        ),
        "c",
    )
    return [x, y, total]


def batched(s: Sizes, *, nt: bool = True) -> Any:
    """Matrices of their own."""
    from tvm import te

    x, y, total = stacks(s, ("float16", "float16"), _F32, nt=nt)
    return te.create_prim_func([x, y, _rounded("float16", total)])


def scores(s: Sizes) -> Any:
    """Queries by keys with heads inside, as attention has them; the result in float32."""
    from tvm import te

    heads = 3
    q = te.placeholder((s.batch, s.m, heads, s.k), "float16", name="q")
    keys = te.placeholder((s.batch, s.n, heads, s.k), "float16", name="keys")
    r = te.reduce_axis((0, s.k), "r")
    total = te.compute(
        (s.batch, heads, s.m, s.n),
        lambda b, h, i, j: te.sum(q[b, i, h, r].astype(_F32) * keys[b, j, h, r].astype(_F32), r),
        "c",
    )
    return te.create_prim_func([q, keys, total])


Program = Callable[[Sizes], Any]
Programs = Mapping[str, tuple[Program, Sequence[Sizes]]]
PROGRAMS: Programs = {
    "NT": (lambda s: matmul(s, nt=True), (Sizes(333, 264, 520), Sizes(137, 88, 72))),
    "NN": (matmul, (Sizes(333, 520, 200), Sizes(70, 1000, 136))),
    "NN bfloat16": (lambda s: matmul(s, kind="bfloat16"), (Sizes(200, 264, 40),)),
    "TN": (lambda s: matmul(s, tn=True), (Sizes(136, 264, 77),)),
    "TT": (lambda s: matmul(s, nt=True, tn=True, kind="bfloat16"), (Sizes(328, 77, 144),)),
    "odd columns": (lambda s: matmul(s, nt=True, kind="bfloat16"), (Sizes(70, 333, 136),)),
    "odd terms": (lambda s: matmul(s, nt=True), (Sizes(200, 136, 77), Sizes(1, 264, 1001))),
    "odd columns NN": (matmul, (Sizes(77, 1001, 72), Sizes(130, 75, 203))),
    "odd TN": (lambda s: matmul(s, tn=True), (Sizes(333, 71, 40),)),
    "odd tokens": (with_residual, (Sizes(29, 75, 131, 3),)),
    "open odd rows": (lambda s: matmul(s, nt=True), (Sizes("m", 136, 77),)),
    "one row": (lambda s: matmul(s, nt=True), (Sizes(1, 1000, 256), Sizes(1, 136, 520))),
    "one row NN": (matmul, (Sizes(1, 520, 264),)),
    "in halves": (in_halves, (Sizes(130, 136, 72),)),
    "tokens": (with_residual, (Sizes(29, 136, 72, 3),)),
    "batched NT": (batched, (Sizes(150, 72, 40, 3),)),
    "batched NN": (lambda s: batched(s, nt=False), (Sizes(77, 72, 136, 2),)),
    "scores": (scores, (Sizes(65, 71, 64, 2),)),
    "open rows": (matmul, (Sizes("m", 136, 264), Sizes("m", 72, 40))),
    "open rows NT": (lambda s: matmul(s, nt=True, kind="bfloat16"), (Sizes("m", 264, 136),)),
}
"""Programs by name, with sizes that tiles do not divide; sums of fewer terms than a stage, too."""
ROWS = (1, 0, 77, 300)
"""Of an open dimension."""


def task_for(name: str, sizes: Sizes, target: str = HOPPER) -> Task:
    """The task of a program in halves."""
    return task_with(PROGRAMS[name][0], sizes, target)


def task_with(program: Program, sizes: Sizes, target: str) -> Task:
    """The task of a program."""
    task = task_of(program(sizes), target, name="product")
    if sizes.m != "m":
        return task
    return replace(task, shapes=tuple(((("m", rows),), 1.0) for rows in ROWS if rows))


def operands_of(s: Sizes, nt: bool, tn: bool, kind: str, other: str) -> tuple[Any, Any]:
    """A and B, or their transposes."""
    from tvm import te, tirx

    m = te.var("m", "int64") if s.m == "m" else s.m
    n, k = (tirx.const(x, "int64") if s.m == "m" else x for x in (s.n, s.k))
    a = te.placeholder((k, m) if tn else (m, k), kind, name="a")
    return a, te.placeholder((n, k) if nt else (k, n), other, name="b")


def sums_of(a: Any, b: Any, nt: bool, tn: bool, kind: str = _F32) -> Any:
    """Their product, summed in a type."""
    from tvm import te

    r = te.reduce_axis((0, a.shape[0 if tn else 1]), "r")
    shape = (a.shape[1 if tn else 0], b.shape[0 if nt else 1])

    def term(i: Any, j: Any) -> Any:
        left, right = (a[r, i] if tn else a[i, r]), (b[j, r] if nt else b[r, j])
        return te.sum(left.astype(kind) * right.astype(kind), r)

    return te.compute(shape, term, "c")


def _rounded(kind: str, total: Any) -> Any:
    from tvm import te

    return te.compute(total.shape, lambda *at: total[at].astype(kind), "d")
