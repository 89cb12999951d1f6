"""Drawing the factors of perfect tiles, without a schedule."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache


def perfect_tile(extent: int, parts: int, most_innermost: int, rng: random.Random) -> list[int]:
    """Random factors of `extent`, the innermost at most `most_innermost` (0 or less: any).

    Each prime goes to any part with equal odds; of the innermost's too many go elsewhere.
    """
    factors = [1] * parts
    for prime in _primes(extent):
        place = rng.randrange(parts)
        if place == parts - 1 and 0 < most_innermost < factors[place] * prime:
            place = rng.randrange(parts - 1) if parts > 1 else 0
        factors[place] *= prime
    return factors


@lru_cache(maxsize=1024)
def number_of_tiles(extent: int, parts: int, most_innermost: int) -> int:
    """How many ways there are to write `extent` as ordered factors; see `perfect_tile`."""
    if parts == 1:
        return int(most_innermost <= 0 or extent <= most_innermost)
    if most_innermost <= 0:
        powers = Counter(_primes(extent)).values()
        return math.prod(math.comb(power + parts - 1, parts - 1) for power in powers)
    innermost = (n for n in range(1, min(extent, most_innermost) + 1) if extent % n == 0)
    return sum(number_of_tiles(extent // n, parts - 1, 0) for n in innermost)


@lru_cache(maxsize=1024)
def _primes(number: int) -> Sequence[int]:
    found, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return (*found, number) if number > 1 else tuple(found)
