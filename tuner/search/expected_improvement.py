"""Expected improvement of a log-normal latency: the worth of measuring a kernel on a shape.
Pure.
"""

from __future__ import annotations

import numpy as np

from tuner.arrays import Floats


def compute_improvement(latencies_s: Floats, spreads: Floats, now_s: Floats) -> Floats:
    """Expected improvement on each shape, as a share of the shape's time so far.

    For a log-normal latency it is `(now * P(d) - mean * P(d - spread)) / now` with
    `d = log(now / median) / spread`. P is the normal distribution function, approximated by a
    logistic curve within 0.01 of it.

    Args:
        latencies_s: medians, kernels by shapes.
        spreads: standard deviations of the latencies' logarithms.
        now_s: time of each shape so far; infinite where no kernel serves it yet.
    """
    relative = np.where(np.isfinite(now_s), latencies_s / now_s, 0.0)
    width = np.maximum(spreads, 1e-9)
    distance = np.clip(-np.log(np.maximum(relative, 1e-30)) / width, -40.0, 40.0)
    mean = relative * np.exp(np.square(spreads) / 2.0)
    gain = _below(distance) - mean * _below(distance - width)
    return np.asarray(np.where(spreads > 0.0, np.maximum(gain, 0.0), np.maximum(1.0 - relative, 0)))


def compute_saving(latencies_s: Floats, spreads: Floats, next_s: Floats) -> Floats:
    """Expected seconds saved by measuring the kernel that seems the best for a shape.

    Where that kernel turns out slower than the next best, the next best takes its place. So this
    is the expected excess of its log-normal latency over that of the next best, as
    `compute_improvement` is the expected shortfall.

    Args:
        next_s: time of the next best kernel for each shape; infinite where there is none, and then
            nothing is saved.
    """
    known = np.isfinite(next_s)
    other_s = np.where(known, next_s, 1.0)
    mean_s = latencies_s * np.exp(np.square(spreads) / 2.0)
    shortfall_s = other_s * compute_improvement(latencies_s, spreads, other_s)
    excess_s = np.where(spreads > 0.0, mean_s - other_s + shortfall_s, latencies_s - other_s)
    return np.asarray(np.where(known, np.maximum(excess_s, 0.0), 0.0))


def _below(deviations: Floats) -> Floats:
    """Share of a normal distribution that is below `deviations` standard deviations."""
    return np.asarray(1.0 / (1.0 + np.exp(-1.702 * np.clip(deviations, -40.0, 40.0))))
