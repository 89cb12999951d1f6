"""Products whose weights are codes of a few bits with scales, as importers write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spaces.lowering.weights.codes import Codes
from tests.spaces.templates.tensor_cores.products import Program, Programs, Sizes

_F32 = "float32"


@dataclass(frozen=True, slots=True)
class Packing:
    """Bits of a code, and codes that share a scale; whether each such block has a zero point of its
    own; the type of weights."""

    bits: int = 4
    block: int = 32
    zeros: bool = False
    kind: str = "float16"


def blocks(s: Sizes, p: Packing) -> Any:
    """By weights of blocks along the terms, as of `MatMulNBits`."""
    from tvm import te

    x = rows_of(s, p.kind)
    n, each = s.n, -(-s.k // p.block)
    codes = te.placeholder((n, each * p.block * p.bits // 8), "uint8", name="codes")
    scales = te.placeholder((n, each), p.kind, name="scales")
    points = te.placeholder((n, -(-each * p.bits // 8)), "uint8", name="points")
    packed, zeros = Codes(codes, p.bits), Codes(points, p.bits)

    def weight(r: Any, j: Any) -> Any:
        own = (j, r // p.block)
        zero = zeros.read(points, own) if p.zeros else 2.0 ** (p.bits - 1)
        return ((packed.read(codes, (j, r)) - zero) * scales[own].astype(_F32)).astype(p.kind)

    w = te.compute((s.k, n), weight, "unpacked")
    more = [points] if p.zeros else []
    return te.create_prim_func([x, codes, scales, *more, multiply(x, w)])


def columns(s: Sizes, kind: str) -> Any:
    """By bytes with a scale for each column, where columns lie next to one another."""
    from tvm import te

    x = rows_of(s, kind)
    codes = te.placeholder((s.k, s.n), "int8", name="codes")
    scales = te.placeholder((s.n,), kind, name="scales")
    w = te.compute(
        (s.k, s.n),
        lambda r, j: (codes[r, j].astype(_F32) * scales[j].astype(_F32)).astype(kind),
        "unpacked",
    )
    return te.create_prim_func([x, codes, scales, multiply(x, w)])


def rows_of(s: Sizes, kind: str) -> Any:
    """The other operand."""
    from tvm import te

    m = te.var("m", "int64") if s.m == "m" else s.m
    return te.placeholder((m, s.k), kind, name="x")


def multiply(x: Any, w: Any) -> Any:
    """Their product, summed in float32 and rounded to the type of both, with ReLU."""
    from tvm import te, tirx

    kind, (depth, width) = str(x.dtype), w.shape
    r = te.reduce_axis((0, depth), "r")
    total = te.compute(
        (x.shape[0], width),
        lambda i, j: te.sum(x[i, r].astype(_F32) * w[r, j].astype(_F32), r),
        "c",
    )
    zero = tirx.const(0, _F32)
    return te.compute(total.shape, lambda *at: tirx.max(total[at], zero).astype(kind), "d")


def _of_blocks(packing: Packing) -> Program:
    return lambda s: blocks(s, packing)


_FOUR, _EIGHT = Packing(), Packing(bits=8)
PROGRAMS: Programs = {
    "4 bits": (_of_blocks(_FOUR), (Sizes(137, 88, 96), Sizes(70, 264, 512))),
    "4 bits, zeros": (
        _of_blocks(Packing(zeros=True, kind="bfloat16")),
        (Sizes(200, 75, 160), Sizes(1, 136, 256)),
    ),
    "blocks of 16": (_of_blocks(Packing(block=16)), (Sizes(33, 200, 272),)),
    "8 bits": (_of_blocks(_EIGHT), (Sizes(130, 72, 320),)),
    "8 bits, zeros": (_of_blocks(Packing(bits=8, zeros=True)), (Sizes(66, 91, 128),)),
    "2 bits": (_of_blocks(Packing(bits=2, block=64, zeros=True)), (Sizes(77, 136, 192),)),
    "uneven blocks": (_of_blocks(_FOUR), (Sizes(70, 72, 100), Sizes(40, 33, 77))),
    "scales of columns": (lambda s: columns(s, "float16"), (Sizes(133, 80, 72), Sizes(70, 75, 40))),
    "open rows": (_of_blocks(_FOUR), (Sizes("m", 136, 256), Sizes("m", 72, 64))),
}
"""Programs by name, with sizes that tiles do not divide; see `Programs`."""
SINGLES: Programs = {
    "4 bits": (_of_blocks(Packing(kind=_F32)), (Sizes(137, 88, 96), Sizes(70, 264, 512))),
    "8 bits, zeros": (
        _of_blocks(Packing(bits=8, zeros=True, kind=_F32)),
        (Sizes(66, 91, 128), Sizes(1, 136, 256)),
    ),
    "uneven blocks": (_of_blocks(Packing(kind=_F32)), (Sizes(40, 33, 77),)),
    "scales of columns": (lambda s: columns(s, _F32), (Sizes(133, 80, 72),)),
    "open rows": (_of_blocks(Packing(kind=_F32)), (Sizes("m", 136, 256),)),
}
"""The same in single precision."""
