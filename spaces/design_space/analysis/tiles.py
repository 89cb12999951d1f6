"""Drawing the factors of perfect tiles, without a schedule."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

_TABULATED = 8192
"""The most tiles of one loop that are tabulated, to be drawn at once."""

Tile = tuple[int, ...]


def perfect_tile(extent: int, parts: int, most_innermost: int, rng: random.Random) -> list[int]:
    """Random factors of `extent`, the innermost at most `most_innermost` (0 or less: any).

    Each prime goes to any part with equal odds; of the innermost's too many go elsewhere.
    """
    if number_of_tiles(extent, parts, 0) <= _TABULATED:
        tiles, odds = _table(extent, parts, most_innermost)
        return list(rng.choices(tiles, cum_weights=odds)[0])
    tile: Tile = (1,) * parts
    for prime in _primes(extent):
        place = rng.choice(_places(tile, prime, most_innermost, rng.randrange(parts)))
        tile = _grow(tile, place, prime)
    return list(tile)


@lru_cache(maxsize=256)
def _table(extent: int, parts: int, most_innermost: int) -> tuple[list[Tile], list[float]]:
    """All tiles, and their odds added up."""
    odds: dict[Tile, float] = {(1,) * parts: 1.0}
    for prime in _primes(extent):
        after: dict[Tile, float] = {}
        for tile, share in odds.items():
            for meant in range(parts):
                places = _places(tile, prime, most_innermost, meant)
                for place in places:
                    grown = _grow(tile, place, prime)
                    after[grown] = after.get(grown, 0.0) + share / parts / len(places)
        odds = after
    return list(odds), list(accumulate(odds.values()))


def _places(tile: Tile, prime: int, most_innermost: int, meant: int) -> Sequence[int]:
    """The parts to which a prime that is meant for one of them may go."""
    last = len(tile) - 1
    if meant < last or not 0 < most_innermost < tile[meant] * prime:
        return (meant,)
    return range(last) if last else (0,)


def _grow(tile: Tile, place: int, prime: int) -> Tile:
    return (*tile[:place], tile[place] * prime, *tile[place + 1 :])


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
