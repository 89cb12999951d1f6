"""Causal attention as a tensor program."""

from __future__ import annotations

import math
from typing import Any


def causal_attention(heads: int, length: int, width: int, dtype: str) -> Any:
    """The program that a graph's attention becomes, of heads in front."""
    from tvm import tirx

    from spaces.lowering.attention.description import Attention, Axis, Load
    from spaces.lowering.attention.program import write_attention

    def make_axis(name: str, extent: int) -> Axis:
        return Axis(tirx.Var(name, "int64"), tirx.IntImm("int64", extent))

    head, row, key = make_axis("h", heads), make_axis("m", length), make_axis("n", length)
    along, column = make_axis("d", width), make_axis("e", width)
    shape = [tirx.IntImm("int64", size) for size in (1, heads, length, width)]
    q, k, v, out = (tirx.decl_buffer(shape, dtype, name) for name in ("q", "k", "v", "out"))

    def load(tensor: Any, at: Axis, within: Axis) -> Load:
        return Load(tensor, (tirx.IntImm("int64", 0), head.var, at.var, within.var))

    product, total = (tirx.Var(name, "float32") for name in ("product", "total"))
    scaled = product * tirx.FloatImm("float32", width**-0.5)
    lowest = tirx.FloatImm("float32", -math.inf)
    attention = Attention(
        *((head,), row, key, along, column),
        *(load(q, row, along), load(k, key, along), load(v, key, column)),
        product=product,
        score=tirx.Select(key.var <= row.var, scaled, lowest),
        is_safe=False,
        total=total,
        result=tirx.Cast(dtype, total),
        place=load(out, row, column),
    )
    return write_attention(attention, [q, k, v, out])
