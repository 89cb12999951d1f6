"""How a matrix instruction may sum: models of it, and which of them fit what a device gave.

A model takes the exact products of one element, a group at a time in the order of k. A group's
products and the sum so far are cut to units of the largest one's exponent and added exactly; that
is rounded to the accumulator's format. Numbers are whole multiples of 2**-SCALE.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from tests.spaces.emulation.instructions.program import Array
from tests.spaces.emulation.instructions.rounding import (
    HALF,
    SINGLE,
    Format,
    Mode,
    round_to,
    value_of,
)

SCALE = 160
EXACT = 10_000


@dataclass(frozen=True, slots=True)
class Model:
    """One way to sum.

    Attributes:
        group: products that are added at once.
        bits: of the fraction that a term keeps, counted from the largest exponent; EXACT keeps all.
        mode: how a group's sum is rounded.
        exponent: of a product: the sum of its factors', or its own.
        kept: bits of the sum that are kept, of a float32's 24.
    """

    group: int
    bits: int
    mode: Mode
    exponent: Literal["factors", "product"]
    kept: int = SINGLE.precision

    def __str__(self) -> str:
        kept = "all bits" if self.bits == EXACT else f"{self.bits} bits"
        said = f"groups of {self.group}, {kept}, {self.mode}, exponent of {self.exponent}"
        return said if self.kept == SINGLE.precision else f"{said}, sums of {self.kept} bits"


@dataclass(frozen=True, slots=True)
class Term:
    """A product: its value and the sum of its factors' exponents."""

    value: int
    factors: int


def models(depth: int, factors: Format) -> Iterator[Model]:
    """All that are tried for an instruction with this K."""
    if factors.bits == 8:
        yield from _models_of_bytes(depth)
        return
    groups = [g for g in (4, 8, 16, 32) if g <= depth]
    modes: tuple[Mode, ...] = ("rz", "rn")
    names: tuple[Literal["factors", "product"], ...] = ("factors", "product")
    for group, bits, mode, name in itertools.product(
        groups, (22, 23, 24, 25, 26, 27, EXACT), modes, names
    ):
        if bits != EXACT or name == "factors":
            yield Model(group, bits, mode, name)


def _models_of_bytes(depth: int) -> Iterator[Model]:
    """Those for floats of 8 bits, of whose sums fewer bits may be kept."""
    modes: tuple[Mode, ...] = ("rz", "rn")
    names: tuple[Literal["factors", "product"], ...] = ("factors", "product")
    sizes = [(g, bits) for g in (16, 32) if g <= depth for bits in (12, 13, 14, 24, 25, 26)]
    for (group, bits), mode, name in itertools.product(sizes, modes, names):
        for kept in {bits, bits + 1, SINGLE.precision}:
            if kept <= SINGLE.precision:
                yield Model(group, bits, mode, name, kept)


def sum_by(model: Model, terms: Sequence[Term], start: int, format: Format) -> int:
    """The bits that this model gives. `start` is what the accumulator holds before."""
    total, bits = start, 0
    for first in range(0, len(terms), model.group):
        group = [t for t in terms[first : first + model.group] if t.value]
        parts = [
            (t.value, t.factors if model.exponent == "factors" else _exponent(t.value))
            for t in group
        ]
        if total:
            parts.append((total, _exponent(total)))
        unit = max((e for _, e in parts), default=0) - model.bits + SCALE
        summed = sum(_cut(value, unit) for value, _ in parts)
        cut = SINGLE.precision - model.kept  # of the sum's last bits
        narrow = Format(format.bits - cut, format.precision - cut, format.max_exponent)
        bits = round_to(Fraction(summed, 1 << SCALE), narrow, model.mode) << cut
        rounded = value_of(bits, format)
        if isinstance(rounded, float):
            return bits
        total = int(rounded * (1 << SCALE))
    return bits


def _cut(value: int, unit: int) -> int:
    """Towards zero, to a multiple of 2**unit."""
    if unit <= 0:
        return value
    cut = abs(value) >> unit << unit
    return cut if value > 0 else -cut


def _exponent(value: int) -> int:
    return abs(value).bit_length() - 1 - SCALE


def fit(
    left: Array, right: Array, added: Array, got: Array, *, factors: Format
) -> dict[str, object]:
    """Which models give exactly what the device gave, and how many elements the best ones do.

    Args:
        left, right, added: (product, m, k), (product, k, n), (product, m, n): bits of the factors,
            bits of the accumulator before.
        got: (product, m, n): bits after.
    """
    format = HALF if got.dtype.itemsize == 2 else SINGLE
    cases = []
    for place in np.ndindex(got.shape):
        b, m, n = place
        pairs = zip(left[b, m].tolist(), right[b, :, n].tolist(), strict=True)
        start = value_of(int(added[place]), format)
        assert isinstance(start, Fraction)
        terms = [_term(x, y, factors) for x, y in pairs]
        cases.append((terms, int(start * (1 << SCALE)), int(got[place])))
    scores = {
        str(model): sum(sum_by(model, terms, start, format) == want for terms, start, want in cases)
        for model in models(left.shape[2], factors)
    }
    best = sorted(scores.items(), key=lambda item: -item[1])[:6]
    return {"elements": len(cases), "best": dict(best)}


def _term(x: int, y: int, format: Format) -> Term:
    a, b = value_of(x, format), value_of(y, format)
    assert isinstance(a, Fraction)
    assert isinstance(b, Fraction)
    product = a * b * (1 << SCALE)
    assert product.denominator == 1
    exponents = [max((v & ~(1 << (format.bits - 1))) >> (format.precision - 1), 1) for v in (x, y)]
    return Term(int(product), sum(exponents) - 2 * format.max_exponent)
