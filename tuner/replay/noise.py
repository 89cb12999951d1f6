"""Noise of timings, for replays on machines that are less calm than the one that recorded. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

Noise = Callable[[float, Sequence[float], random.Random], float]
"""The time that a timing tells, seconds: from the true one, and the rounds that were recorded."""

_SPREAD = 0.12
"""Standard deviation of the logarithm of a timing on two cores with busy neighbours."""
_DISTURBED, _DISTURBED_BY = 0.1, 0.4
"""Share of timings that something else on the machine falls into, and the mean of the logarithm of
what these are slowed by."""


def draw_normal(latency_s: float, rounds_s: Sequence[float], rng: random.Random) -> float:
    """Log-normal noise."""
    return latency_s * math.exp(rng.gauss(0.0, _SPREAD))


def draw_tailed(latency_s: float, rounds_s: Sequence[float], rng: random.Random) -> float:
    """Log-normal noise, and a few timings that are slower by much."""
    slowed = rng.expovariate(1 / _DISTURBED_BY) if rng.random() < _DISTURBED else 0.0
    return draw_normal(latency_s, rounds_s, rng) * math.exp(slowed)


def draw_recorded(latency_s: float, rounds_s: Sequence[float], rng: random.Random) -> float:
    """One of the rounds that were recorded."""
    return rng.choice(rounds_s) if rounds_s else latency_s


def keep_true(latency_s: float, rounds_s: Sequence[float], rng: random.Random) -> float:
    """No noise."""
    return latency_s


NOISES: Mapping[str, Noise] = MappingProxyType(
    {
        "none": keep_true,
        "normal": draw_normal,
        "tailed": draw_tailed,
        "recorded": draw_recorded,
    }
)
"""By the names on the command line of `benchmarks.replay`."""
