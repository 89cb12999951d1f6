"""The number of steps of a loop that are done at once."""

from __future__ import annotations

LEAST_VECTOR = 4
"""The fewest lanes that make a vector."""


def divisor_up_to(number: int, limit: int) -> int:
    """The largest divisor that is at most `limit`; the number itself where that is 0."""
    if limit <= 0 or limit >= number:
        return number
    return next(d for d in range(limit, 0, -1) if number % d == 0)


def tile_of(steps: int, limit: int, *, is_symbolic: bool) -> int:
    """Steps of a tile, at most `limit`; all of them where that is 0.

    A known extent is divided evenly; a symbolic one has a smaller tile at its end.
    """
    if not is_symbolic:
        return divisor_up_to(steps, limit)
    return min(limit, steps) if limit > 0 else steps


def vector_width(steps: int, width: int) -> int:
    """Lanes to use for a loop: the power of two, at most `width`, that makes the fewest steps.

    The remainder is done one by one. 0 where the loop is too short for a vector.
    """
    fitting = [w for w in powers(width) if w <= steps]
    return min(fitting, key=lambda w: (steps // w + steps % w, -w), default=0)


def powers(most: int) -> list[int]:
    """Numbers of lanes that are worth a vector, up to `most`."""
    return [1 << n for n in range(most.bit_length()) if 1 << n >= LEAST_VECTOR]
