"""The quality of estimates: pairs of one task that they order rightly."""

from __future__ import annotations

from tuner.session.estimate_accuracy import EstimateQuality


def test_nothing_is_known_before_a_pair() -> None:
    quality = EstimateQuality()
    quality.add("a", 1.0, 1.0)
    quality.add("b", 2.0, 0.5)
    assert quality.accuracy is None


def test_pairs_within_a_task_count_and_ties_count_half() -> None:
    quality = EstimateQuality()
    for estimate_s, latency_s in [(1.0, 10.0), (2.0, 20.0), (3.0, 15.0), (3.0, 30.0)]:
        quality.add("a", estimate_s, latency_s)
    # Right: 1-2, 1-3, 1-4, 2-4. Wrong: 2-3. A tie: 3-4.
    assert quality.accuracy == 4.5 / 6


def test_equal_latencies_say_nothing() -> None:
    quality = EstimateQuality()
    quality.add("a", 1.0, 1.0)
    quality.add("a", 2.0, 1.0)
    assert quality.accuracy is None
