"""Numbers of a comparison: spreads, ratios and means. Pure."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any


def found(row: Mapping[str, Any], path: str) -> Any:
    """The value at keys joined by dots; None where there is none."""
    value: Any = row
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def geometric_mean(values: Sequence[float]) -> float | None:
    """None of nothing, and where a value is not above zero."""
    if not values or any(not 0 < value < math.inf for value in values):
        return None
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def summed_up(ratios: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Geometric mean and least of what `ratio` gave; None is a comparison that failed."""
    known = [r["of_medians"] for r in ratios if r]
    return {
        "geometric_mean": geometric_mean(known),
        "least": min(known, default=None),
        "of": len(known),
        "failed": len(ratios) - len(known),
    }


def spread(values: Sequence[float], *, scale: float = 1.0) -> dict[str, Any]:
    """Median, quartiles and number of samples, each value times `scale`."""
    low, middle, high = _quartiles([value * scale for value in values])
    return {"median": middle, "low": low, "high": high, "rounds": len(values)}


def ratio(over: Sequence[float], under: Sequence[float]) -> dict[str, Any]:
    """Of medians, and the quartiles of the ratios of samples of the same round."""
    rounds = [a / b for a, b in zip(over, under, strict=False)]
    low, _, high = _quartiles(rounds)
    medians = statistics.median(over) / statistics.median(under)
    return {"of_medians": medians, "low": low, "high": high, "rounds": len(rounds)}


def rate_per_s(times_s: Sequence[float], *, skip: int) -> float | None:
    """Events a second after the first `skip` ones, `times_s` in order; None where too few."""
    if len(times_s) < skip + 1 or skip < 1 or times_s[-1] <= times_s[skip - 1]:
        return None
    return (len(times_s) - skip) / (times_s[-1] - times_s[skip - 1])


def reached_s(timed: Sequence[tuple[float, float]], goal_s: float) -> float | None:
    """When a latency of at most `goal_s` was first known; None if it never was.

    Args:
        timed: time of arrival and latency of each trial that gave one, in any order.
    """
    return min((time_s for time_s, latency_s in timed if latency_s <= goal_s), default=None)


def rank_correlation(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Spearman's; None of fewer than two pairs, and where all of one side are equal."""
    try:
        return statistics.correlation(_ranks(xs), _ranks(ys))
    except statistics.StatisticsError:
        return None


def _ranks(values: Sequence[float]) -> list[float]:
    """Places in order; equal values have the same, between those that they take."""
    known = sorted(values)
    return [(bisect_left(known, value) + bisect_right(known, value)) / 2 for value in values]


def quotient(over: float | None, under: float | None) -> float | None:
    """None where either is unknown or `under` is zero."""
    return None if over is None or not under else over / under


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high
