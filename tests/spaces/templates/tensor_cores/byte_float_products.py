"""Products of floats of 8 bits, in every layout and with what networks do to them."""

from __future__ import annotations

from typing import Any

from spaces.targets.target import emulate_target
from tests.spaces.templates.tensor_cores.products import (
    Programs,
    Sizes,
    operands_of,
    stacks,
    sums_of,
)

ADA = emulate_target('{"kind":"cuda","arch":"sm_89"}')
E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
_F32, _BF16 = "float32", "bfloat16"


def matmul(
    s: Sizes,
    *,
    nt: bool = False,
    tn: bool = False,
    kinds: tuple[str, str] = (E4M3, E4M3),
    sums: str = _F32,
) -> Any:
    """A or its transpose by B or its transpose; the sums are the result."""
    from tvm import te

    a, b = operands_of(s, nt, tn, *kinds)
    return te.create_prim_func([a, b, sums_of(a, b, nt, tn, sums)])


def requantized(s: Sizes, *, sums: str = _F32) -> Any:
    """Scaled by rows and by columns, with a bias and ReLU, in 8 bits again."""
    from tvm import te, tirx

    a, b = operands_of(s, True, False, E4M3, E4M3)
    rows = te.placeholder((a.shape[0], 1), _F32, name="rows")
    columns, bias = (te.placeholder((s.n,), _F32, name=name) for name in ("columns", "bias"))
    total = sums_of(a, b, True, False, sums)

    def level(i: Any, j: Any) -> Any:
        real = total[i, j].astype(_F32) * rows[i, 0] * columns[j] * 0.05 + bias[j]
        return tirx.max(real, tirx.const(0, _F32)).astype(E4M3)

    return te.create_prim_func([a, b, rows, columns, bias, te.compute(total.shape, level, "out")])


def tokens(s: Sizes, *, sums: str = _BF16) -> Any:
    """Of tokens in a batch, gradients by weights, with what was there before, as bfloat16."""
    from tvm import te

    x = te.placeholder((s.batch, s.m, s.k), E5M2, name="x")
    w = te.placeholder((s.n, s.k), E4M3, name="w")
    before = te.placeholder((s.batch, s.m, s.n), _BF16, name="before")
    r = te.reduce_axis((0, s.k), "r")
    total = te.compute(
        before.shape,
        lambda b, i, j: te.sum(x[b, i, r].astype(sums) * w[j, r].astype(sums), r),
        "c",
    )
    out = te.compute(
        before.shape, lambda b, i, j: total[b, i, j].astype(_BF16) + before[b, i, j], "d"
    )
    return te.create_prim_func([x, w, before, out])


def batched(s: Sizes) -> Any:
    """Matrices of their own."""
    from tvm import te

    return te.create_prim_func(stacks(s, (E4M3, E5M2), _F32))


PROGRAMS: Programs = {
    "NT": (lambda s: matmul(s, nt=True), (Sizes(137, 88, 80), Sizes(333, 1000, 528))),
    "NN": (matmul, (Sizes(70, 1008, 144), Sizes(333, 160, 528))),
    "TN": (lambda s: matmul(s, tn=True, kinds=(E5M2, E4M3)), (Sizes(144, 272, 77),)),
    "TT": (lambda s: matmul(s, nt=True, tn=True), (Sizes(336, 77, 144),)),
    "odd": (
        lambda s: matmul(s, nt=True, kinds=(E4M3, E5M2)),
        (Sizes(70, 75, 5), Sizes(333, 1000, 517)),
    ),
    "odd NN": (matmul, (Sizes(77, 1001, 72), Sizes(130, 75, 203))),
    "e5m2": (lambda s: matmul(s, nt=True, kinds=(E5M2, E5M2)), (Sizes(200, 136, 272),)),
    "one row": (lambda s: matmul(s, nt=True), (Sizes(1, 1000, 256), Sizes(1, 136, 528))),
    "in halves": (lambda s: matmul(s, nt=True, sums="float16"), (Sizes(130, 144, 272),)),
    "requantized": (requantized, (Sizes(130, 144, 272), Sizes(77, 71, 96))),
    "batched": (batched, (Sizes(77, 80, 144, 2),)),
    "open rows": (requantized, (Sizes("m", 144, 272), Sizes("m", 71, 40))),
    "open rows NN": (matmul, (Sizes("m", 264, 144),)),
}
"""Programs by name, with sizes that tiles do not divide; sums of fewer terms than a stage, too."""

ROUGH: Programs = {
    "NT": (
        lambda s: matmul(s, nt=True, sums=_BF16),
        (Sizes(137, 88, 80), Sizes(333, 200, 1040)),
    ),
    "odd": (
        lambda s: matmul(s, nt=True, kinds=(E4M3, E5M2), sums=_BF16),
        (Sizes(70, 75, 5), Sizes(133, 200, 517)),
    ),
    "one row": (lambda s: matmul(s, nt=True, sums=_BF16), (Sizes(1, 136, 528),)),
    "tokens": (tokens, (Sizes(29, 136, 80, 3), Sizes(61, 75, 400, 2))),
    "requantized": (lambda s: requantized(s, sums=_BF16), (Sizes(130, 144, 272),)),
    "open rows": (
        lambda s: requantized(s, sums=_BF16),
        (Sizes("m", 71, 40), Sizes("m", 144, 272)),
    ),
}
"""The same, summed in bfloat16."""
