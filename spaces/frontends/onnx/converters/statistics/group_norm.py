"""Normalisation of groups of channels as one program.

TVM's own takes the variance as a difference of two large numbers where a mean is large.
"""

from __future__ import annotations

import math
from typing import Any


def group_norm(
    data: Any, scale: Any, shift: Any, groups: int, epsilon: float, wide: str, per_channel: bool
) -> Any:
    """A tensor, (batch, channels, ...), with each group of channels normalised.

    Args:
        scale: of each channel, or of each group; `shift` likewise.
        wide: type that is computed in.
        per_channel: which of both.
    """
    from tvm import te, tirx

    batch, channels, *rest = data.shape
    size = channels // groups
    count = math.prod(rest, start=size).astype(wide)

    def summed(name: str, term: Any) -> Any:
        steps = [
            te.reduce_axis((0, extent), name=f"k{n}") for n, extent in enumerate((size, *rest))
        ]
        return te.compute(
            (batch, groups),
            lambda b, g: te.sum(term(b, g, g * size + steps[0], steps[1:]), axis=steps),
            name=name,
        )

    total = summed("total", lambda b, g, c, at: data[(b, c, *at)].astype(wide))
    mean = te.compute((batch, groups), lambda b, g: total[b, g] / count, name="mean")

    def centred(b: Any, g: Any, c: Any, at: Any) -> Any:
        return data[(b, c, *at)].astype(wide) - mean[b, g]

    squares = summed("squares", lambda b, g, c, at: centred(b, g, c, at) * centred(b, g, c, at))
    small = tirx.const(epsilon, wide)

    def normal(b: Any, c: Any, *at: Any) -> Any:
        group = c // size
        place = c if per_channel else group
        value = centred(b, group, c, at) * tirx.rsqrt(squares[b, group] / count + small)
        scaled = value * scale[place].astype(wide) + shift[place].astype(wide)
        return scaled.astype(data.dtype)

    return te.compute(data.shape, normal, name="group_norm")
