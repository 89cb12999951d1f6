"""Products with few rows, in every layout and type, with what networks do to them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from spaces.design_space.knob_space import KnobSpace
from spaces.templates.few_rows.family import NAME
from tests.spaces.templates.open_programs import (
    Program,
    Size,
    extent,
    space_named,
    task_of_program,
)
from tests.spaces.templates.tensor_cores.packed_products import Packing, blocks, columns
from tests.spaces.templates.tensor_cores.products import Sizes
from tuner.task import Instance, Task

_F32 = "float32"


def matmul(
    m: Size, n: Size, k: Size, *, nt: bool = False, tn: bool = False, kind: str = "float16"
) -> Any:
    """A or its transpose by B or its transpose, summed in float32."""
    from tvm import te

    m, n, k = map(extent, (m, n, k))
    a = te.placeholder((k, m) if tn else (m, k), kind, name="a")
    b = te.placeholder((n, k) if nt else (k, n), kind, name="b")
    r = te.reduce_axis((0, k), "r")

    def term(i: Any, j: Any) -> Any:
        left, right = (a[r, i] if tn else a[i, r]), (b[j, r] if nt else b[r, j])
        return te.sum(left.astype(_F32) * right.astype(_F32), r)

    total = te.compute((m, n), term, "c")
    if kind == _F32:
        return te.create_prim_func([a, b, total])
    return te.create_prim_func([a, b, te.compute((m, n), lambda *at: total[at].astype(kind), "d")])


def layer(m: Size, n: int, k: int) -> Any:
    """Summed in float16, as Relax has it where nothing is said; with a bias and ReLU."""
    from tvm import te, tirx

    kind, rows = "float16", extent(m)
    x = te.placeholder((rows, k), kind, name="x")
    w = te.placeholder((n, k), kind, name="w")
    bias = te.placeholder((n,), kind, name="bias")
    r = te.reduce_axis((0, k), "r")
    total = te.compute((rows, n), lambda i, j: te.sum(x[i, r] * w[j, r], r), "c")
    out = te.compute(
        (rows, n), lambda i, j: tirx.max(total[i, j] + bias[j], tirx.const(0, kind)), "d"
    )
    return te.create_prim_func([x, w, bias, out])


def tokens(batch: int, m: int, n: int, k: int, kind: str) -> Any:
    """Of some tokens of each sequence, with what was there before and a scale."""
    from tvm import te

    x = te.placeholder((batch, m, k), kind, name="x")
    w = te.placeholder((k, n), kind, name="w")
    scale = te.placeholder((n,), _F32, name="scale")
    before = te.placeholder((batch, m, n), kind, name="before")
    r = te.reduce_axis((0, k), "r")
    total = te.compute(
        before.shape, lambda b, i, j: te.sum(x[b, i, r].astype(_F32) * w[r, j].astype(_F32), r), "c"
    )
    out = te.compute(
        before.shape,
        lambda b, i, j: (total[b, i, j] * scale[j]).astype(kind) + before[b, i, j],
        "d",
    )
    return te.create_prim_func([x, w, scale, before, out])


def heads(batch: int, m: int, n: Size, k: int, *, nt: bool, kind: str) -> Any:
    """Queries by keys, or scores by values, of heads that lie inside of tokens."""
    from tvm import te

    many, number = extent(n), 3
    q = te.placeholder((batch, m, number, k), kind, name="q")
    shape = (batch, many, number, k) if nt else (batch, k, number, many)
    y = te.placeholder(shape, kind, name="y")
    r = te.reduce_axis((0, k), "r")

    def term(b: Any, h: Any, i: Any, j: Any) -> Any:
        other = y[b, j, h, r] if nt else y[b, r, h, j]
        return te.sum(q[b, i, h, r].astype(_F32) * other.astype(_F32), r)

    total = te.compute((batch, number, m, many), term, "c")
    return te.create_prim_func([q, y, total])


def _open(name: str, *sizes: int) -> tuple[Instance, ...]:
    return tuple(((name, size),) for size in sizes)


_BF16 = "bfloat16"
PROGRAMS: Mapping[str, Program] = {
    "one row NT": Program(partial(matmul, 1, 1000, 4096, nt=True)),
    "one row NN": Program(partial(matmul, 1, 1000, 517)),
    "one row NN float32": Program(partial(matmul, 1, 1000, 4096, kind=_F32)),
    "odd terms": Program(partial(matmul, 3, 333, 517, nt=True, kind=_BF16)),
    "odd columns": Program(partial(matmul, 3, 333, 264, kind=_F32)),
    "TN": Program(partial(matmul, 3, 1000, 517, tn=True, kind=_BF16)),
    "TT": Program(partial(matmul, 16, 200, 264, nt=True, tn=True)),
    "sixteen rows": Program(partial(matmul, 16, 1000, 520, nt=True, kind=_BF16)),
    "seventeen rows": Program(partial(matmul, 17, 200, 517, nt=True, kind=_F32)),
    "few columns": Program(partial(matmul, 1000, 3, 520, nt=True)),
    "few columns TN": Program(partial(matmul, 264, 5, 77, tn=True, kind=_F32)),
    "bias and relu": Program(partial(layer, 2, 520, 264)),
    "tokens": Program(partial(tokens, 2, 3, 200, 264, _BF16)),
    "batched NT": Program(partial(heads, 2, 1, 136, 72, nt=True, kind="float16")),
    "batched NN": Program(partial(heads, 2, 4, 72, 77, nt=False, kind=_F32)),
    "open rows": Program(partial(matmul, "m", 136, 264, nt=True), _open("m", 0, 1, 7, 40)),
    "open rows NN": Program(partial(layer, "m", 200, 77), _open("m", 0, 2, 16, 33)),
    "open terms": Program(partial(matmul, 3, 200, "k", nt=True), _open("k", 1, 517, 264)),
    "open columns": Program(
        partial(heads, 2, 1, "n", 64, nt=True, kind=_BF16), _open("n", 0, 1, 77, 300)
    ),
    "4 bits": Program(partial(blocks, Sizes(1, 200, 1056), Packing())),
    "4 bits, zeros": Program(partial(blocks, Sizes(3, 77, 544), Packing(zeros=True, kind=_BF16))),
    "8 bits": Program(partial(blocks, Sizes(5, 136, 200), Packing(bits=8, block=16, kind=_F32))),
    "2 bits": Program(partial(blocks, Sizes(16, 88, 101), Packing(bits=2, zeros=True))),
    "scales of columns": Program(partial(columns, Sizes(2, 208, 517), "float16")),
    "4 bits, open rows": Program(
        partial(blocks, Sizes("m", 136, 288), Packing()), _open("m", 0, 1, 7, 40)
    ),
}
"""Programs by name, with sizes that tiles do not divide."""


def task_for(name: str, target: str) -> Task:
    """The task of a program."""
    return task_of_program(PROGRAMS[name], target, "few")


def space_for(task: Task) -> KnobSpace:
    """The space of a task's template for few rows."""
    return space_named(task, NAME)
