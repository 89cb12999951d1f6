"""Products of bytes, in every layout and with what quantised networks do to them."""

from __future__ import annotations

from typing import Any

from tests.spaces.templates.tensor_cores.products import (
    Programs,
    Sizes,
    operands_of,
    stacks,
    sums_of,
)

_WIDE = "int32"


def matmul(
    s: Sizes, *, nt: bool = False, tn: bool = False, kinds: tuple[str, str] = ("int8", "int8")
) -> Any:
    """A or its transpose by B or its transpose; the sums are the result."""
    from tvm import te

    a, b = operands_of(s, nt, tn, *kinds)
    return te.create_prim_func([a, b, sums_of(a, b, nt, tn, _WIDE)])


def requantized(s: Sizes, *, nt: bool = False) -> Any:
    """As ONNX's QLinearMatMul: less zero points by columns, scaled, rounded, and clipped."""
    from tvm import te, tirx

    a, b = operands_of(s, nt, False, "uint8", "int8")
    zeros = te.placeholder((1, s.n), _WIDE, name="zeros")
    total = sums_of(a, b, nt, False, _WIDE)
    level = te.compute(
        total.shape, lambda i, j: (total[i, j] - zeros[0, j]).astype("float32") * 0.0007, "level"
    )
    rounded = te.compute(total.shape, lambda i, j: tirx.nearbyint(level[i, j]) + 100.0, "rounded")
    out = te.compute(
        total.shape,
        lambda i, j: tirx.max(tirx.min(rounded[i, j], 255.0), 0.0).astype("uint8"),
        "out",
    )
    return te.create_prim_func([a, b, zeros, out])


def dequantized(s: Sizes) -> Any:
    """Of tokens in a batch, scaled by columns, with a bias, as halves."""
    from tvm import te

    x = te.placeholder((s.batch, s.m, s.k), "int8", name="x")
    w = te.placeholder((s.n, s.k), "int8", name="w")
    scales, bias = (te.placeholder((s.n,), "float32", name=name) for name in ("scales", "bias"))
    r = te.reduce_axis((0, s.k), "r")
    shape = (s.batch, s.m, s.n)
    total = te.compute(
        shape, lambda b, i, j: te.sum(x[b, i, r].astype(_WIDE) * w[j, r].astype(_WIDE), r), "c"
    )
    out = te.compute(
        shape,
        lambda b, i, j: (total[b, i, j].astype("float32") * scales[j] + bias[j]).astype("float16"),
        "d",
    )
    return te.create_prim_func([x, w, scales, bias, out])


def batched(s: Sizes) -> Any:
    """Matrices of their own."""
    from tvm import te

    return te.create_prim_func(stacks(s, ("uint8", "uint8"), _WIDE))


PROGRAMS: Programs = {
    "NT": (lambda s: matmul(s, nt=True), (Sizes(137, 88, 80), Sizes(333, 1000, 528))),
    "NN": (matmul, (Sizes(70, 1008, 144), Sizes(333, 160, 528))),
    "TN": (lambda s: matmul(s, tn=True), (Sizes(144, 272, 77),)),
    "TT": (lambda s: matmul(s, nt=True, tn=True), (Sizes(336, 77, 144),)),
    "odd": (lambda s: matmul(s, nt=True), (Sizes(70, 75, 5), Sizes(333, 1000, 517))),
    "odd NN": (matmul, (Sizes(77, 1001, 72), Sizes(130, 75, 203))),
    "odd TN": (lambda s: matmul(s, tn=True), (Sizes(333, 71, 40),)),
    "signs of one": (
        lambda s: matmul(s, nt=True, kinds=("uint8", "int8")),
        (Sizes(200, 136, 272), Sizes(29, 77, 33)),
    ),
    "signs of the other": (
        lambda s: matmul(s, kinds=("int8", "uint8")),
        (Sizes(77, 144, 128), Sizes(29, 77, 33)),
    ),
    "one row": (lambda s: matmul(s, nt=True), (Sizes(1, 1000, 256), Sizes(1, 136, 528))),
    "requantized": (requantized, (Sizes(130, 144, 272), Sizes(77, 71, 96))),
    "requantized NT": (lambda s: requantized(s, nt=True), (Sizes(130, 144, 272),)),
    "dequantized": (dequantized, (Sizes(29, 136, 80, 3),)),
    "batched": (batched, (Sizes(77, 80, 144, 2),)),
    "open rows": (requantized, (Sizes("m", 144, 272), Sizes("m", 71, 40))),
    "open rows NT": (lambda s: matmul(s, nt=True), (Sizes("m", 264, 144),)),
}
"""Programs by name, with sizes that tiles do not divide; sums of fewer terms than a stage, too."""
