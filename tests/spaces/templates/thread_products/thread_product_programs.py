"""Products in float32, in every layout and with what networks do to them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from spaces.design_space.knob_space import KnobSpace
from spaces.templates.thread_products.family import NAME
from tests.spaces.templates.few_rows.few_row_programs import heads, matmul, tokens
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


def layer(m: Size, n: Size, k: Size, *, to: str = _F32) -> Any:
    """With a bias and ReLU; rounded where another type is asked for."""
    from tvm import te, tirx

    m, n, k = map(extent, (m, n, k))
    x = te.placeholder((m, k), _F32, name="x")
    w = te.placeholder((k, n), _F32, name="w")
    bias = te.placeholder((n,), _F32, name="bias")
    r = te.reduce_axis((0, k), "r")
    total = te.compute((m, n), lambda i, j: te.sum(x[i, r] * w[r, j], r), "c")
    out = te.compute(
        (m, n), lambda i, j: tirx.max(total[i, j] + bias[j], tirx.const(0, _F32)).astype(to), "d"
    )
    return te.create_prim_func([x, w, bias, out])


def turned(m: Size, n: Size, k: Size) -> Any:
    """Rows lie next to one another in the result."""
    from tvm import te

    m, n, k = map(extent, (m, n, k))
    x = te.placeholder((m, k), _F32, name="x")
    w = te.placeholder((n, k), _F32, name="w")
    r = te.reduce_axis((0, k), "r")
    total = te.compute((n, m), lambda j, i: te.sum(x[i, r] * w[j, r], r), "c")
    return te.create_prim_func([x, w, total])


def batched(b: Size, m: Size, n: Size, k: Size, *, nt: bool) -> Any:
    """Matrices of their own."""
    from tvm import te

    b, m, n, k = map(extent, (b, m, n, k))
    x = te.placeholder((b, m, k), _F32, name="x")
    y = te.placeholder((b, n, k) if nt else (b, k, n), _F32, name="y")
    r = te.reduce_axis((0, k), "r")

    def term(z: Any, i: Any, j: Any) -> Any:
        return te.sum(x[z, i, r] * (y[z, j, r] if nt else y[z, r, j]), r)

    return te.create_prim_func([x, y, te.compute((b, m, n), term, "c")])


def _open(*names: str, sizes: tuple[tuple[int, ...], ...]) -> tuple[Instance, ...]:
    return tuple(tuple(zip(names, each, strict=True)) for each in sizes)


_ROWS = ((0,), (1,), (77,), (300,))
PROGRAMS: Mapping[str, Program] = {
    "NN": Program(partial(matmul, 200, 264, 136, kind=_F32)),
    "NT": Program(partial(matmul, 264, 200, 136, nt=True, kind=_F32)),
    "TN": Program(partial(matmul, 136, 264, 77, tn=True, kind=_F32)),
    "TT": Program(partial(matmul, 328, 77, 144, nt=True, tn=True, kind=_F32)),
    "odd NN": Program(partial(matmul, 333, 1000, 517, kind=_F32)),
    "odd NT": Program(partial(matmul, 333, 1000, 517, nt=True, kind=_F32)),
    "odd TN": Program(partial(matmul, 331, 211, 131, tn=True, kind=_F32)),
    "pairs": Program(partial(matmul, 202, 166, 70, kind=_F32)),
    "pairs TT": Program(partial(matmul, 166, 202, 70, nt=True, tn=True, kind=_F32)),
    "one row": Program(partial(matmul, 1, 520, 264, kind=_F32)),
    "one column": Program(partial(matmul, 333, 1, 136, nt=True, kind=_F32)),
    "three terms": Program(partial(matmul, 200, 136, 3, kind=_F32)),
    "two terms": Program(partial(matmul, 137, 88, 2, kind=_F32)),
    "bias and relu": Program(partial(layer, 130, 136, 72)),
    "rounded": Program(partial(layer, 70, 264, 40, to="float16")),
    "turned": Program(partial(turned, 136, 77, 72)),
    "tokens": Program(partial(tokens, 3, 29, 136, 72, _F32)),
    "odd tokens": Program(partial(tokens, 3, 29, 75, 131, _F32)),
    "batched NT": Program(partial(batched, 3, 150, 72, 40, nt=True)),
    "heads": Program(partial(heads, 2, 65, 72, 64, nt=True, kind=_F32)),
    "heads NN": Program(partial(heads, 2, 65, 71, 40, nt=False, kind=_F32)),
    "open rows": Program(partial(matmul, "m", 136, 264, kind=_F32), _open("m", sizes=_ROWS)),
    "open rows NT": Program(
        partial(matmul, "m", 77, 131, nt=True, kind=_F32), _open("m", sizes=_ROWS)
    ),
    "open layer": Program(partial(layer, "m", 264, 77), _open("m", sizes=_ROWS)),
    "open terms": Program(
        partial(matmul, 70, 136, "k", kind=_F32), _open("k", sizes=((0,), (1,), (77,), (136,)))
    ),
    "open batch": Program(
        partial(batched, "b", "m", "n", "k", nt=True),
        _open("b", "k", "m", "n", sizes=((2, 3, 5, 77), (1, 40, 1, 128), (3, 77, 131, 40))),
    ),
    "open turned": Program(
        partial(turned, "m", "n", 72), _open("m", "n", sizes=((77, 5), (1, 300), (131, 64)))
    ),
    "4 bits": Program(partial(blocks, Sizes(200, 264, 160), Packing(kind=_F32))),
    "8 bits, zeros": Program(
        partial(blocks, Sizes(70, 91, 77), Packing(bits=8, zeros=True, kind=_F32))
    ),
    "scales of columns": Program(partial(columns, Sizes(130, 136, 72), _F32)),
    "4 bits, open rows": Program(
        partial(blocks, Sizes("m", 136, 96), Packing(kind=_F32)), _open("m", sizes=_ROWS)
    ),
}
"""Programs by name, with sizes that tiles do not divide; sums of fewer terms than a stage, too."""


def task_for(name: str, target: str) -> Task:
    """The task of a program."""
    return task_of_program(PROGRAMS[name], target, "product")


def space_for(task: Task) -> KnobSpace:
    """The space of a task's template for products that threads multiply."""
    return space_named(task, NAME)
