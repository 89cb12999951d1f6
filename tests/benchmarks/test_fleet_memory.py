"""What is said of a search's memory: it may grow with its records as their features do, and with
time not at all."""

from __future__ import annotations

from benchmarks.fleet.memory import judged
from benchmarks.fleet.scale import saturation

FEATURES = 512
"""Two kilobytes of them."""


def sizes(kb_per_record: float, base_mb: float = 100.0) -> list[tuple[int, float]]:
    return [(n, base_mb + kb_per_record * n / 1024) for n in range(10_000, 100_001, 10_000)]


def test_the_slope_counts_once_everything_that_has_a_limit_is_full() -> None:
    filling = [(1000, 10.0), (5000, 90.0), *sizes(3.0)]
    found = judged(filling, [], FEATURES)
    assert round(found["kb_per_record"], 3) == 3.0
    assert found["passed"]


def test_more_than_twice_the_features_is_too_much() -> None:
    assert not judged(sizes(4.5), [], FEATURES)["passed"]


def test_memory_that_grows_while_nothing_is_measured_is_lost() -> None:
    assert judged(sizes(3.0), [300.0, 340.0, 301.0], FEATURES)["passed"], "it came back"
    assert not judged(sizes(3.0), [300.0, 310.0, 340.0], FEATURES)["passed"]


def test_two_gigabytes_are_too_much() -> None:
    assert not judged(sizes(3.0, base_mb=2000.0), [], FEATURES)["passed"]


def test_a_fleet_saturates_at_its_best_rate() -> None:
    rows = [
        {"slots": 128, "trials_per_s": 410.0, "efficiency": 0.96},
        {"slots": 256, "trials_per_s": 600.0, "efficiency": 0.7},
    ]
    found = saturation(rows)
    assert found["fleet_trials_per_s"] == 600.0
    assert round(found["fleet_slots"]) == 180
    assert found["most_slots_used_well"] == 128
    assert saturation([]) == {}
