"""Products in single precision, in every layout and with what networks do to them."""

from __future__ import annotations

from typing import Any

from tests.spaces.templates.tensor_cores.products import (
    Programs,
    Sizes,
    operands_of,
    stacks,
    sums_of,
)

_KIND = "float32"


def matmul(s: Sizes, *, nt: bool = False, tn: bool = False) -> Any:
    """A or its transpose by B or its transpose."""
    from tvm import te

    a, b = operands_of(s, nt, tn, _KIND, _KIND)
    return te.create_prim_func([a, b, sums_of(a, b, nt, tn)])


def with_bias(s: Sizes) -> Any:
    """With a bias and ReLU."""
    from tvm import te, tirx

    a, b = operands_of(s, True, False, _KIND, _KIND)
    bias = te.placeholder((s.n,), _KIND, name="bias")
    total = sums_of(a, b, True, False)
    out = te.compute(
        total.shape, lambda i, j: tirx.max(total[i, j] + bias[j], tirx.const(0, _KIND)), "e"
    )
    return te.create_prim_func([a, b, bias, out])


def batched(s: Sizes, *, nt: bool = False) -> Any:
    """Matrices of their own."""
    from tvm import te

    return te.create_prim_func(stacks(s, (_KIND, _KIND), _KIND, nt=nt))


PROGRAMS: Programs = {
    "NT": (lambda s: matmul(s, nt=True), (Sizes(137, 88, 76), Sizes(333, 1000, 516))),
    "NN": (matmul, (Sizes(70, 264, 132), Sizes(333, 520, 200))),
    "TN": (lambda s: matmul(s, tn=True), (Sizes(136, 264, 77),)),
    "TT": (lambda s: matmul(s, nt=True, tn=True), (Sizes(328, 77, 144),)),
    "odd": (lambda s: matmul(s, nt=True), (Sizes(70, 75, 17), Sizes(333, 1000, 517))),
    "odd NN": (matmul, (Sizes(77, 1001, 72), Sizes(130, 75, 203))),
    "odd TN": (lambda s: matmul(s, tn=True), (Sizes(333, 71, 40),)),
    "one row": (lambda s: matmul(s, nt=True), (Sizes(1, 1000, 256), Sizes(1, 136, 520))),
    "bias": (with_bias, (Sizes(130, 136, 72),)),
    "batched": (batched, (Sizes(77, 72, 136, 2),)),
    "batched NT": (lambda s: batched(s, nt=True), (Sizes(77, 72, 136, 2),)),
    "open rows": (matmul, (Sizes("m", 136, 264), Sizes("m", 71, 41))),
    "open rows NT": (lambda s: matmul(s, nt=True), (Sizes("m", 264, 136),)),
}
"""Programs by name, with sizes that tiles do not divide; sums of fewer terms than a stage, too."""
NT_PROGRAMS: Programs = {
    name: PROGRAMS[name] for name in ("NT", "odd", "one row", "bias", "batched NT", "open rows NT")
}
"""Those where the terms of both operands lie next to one another."""
