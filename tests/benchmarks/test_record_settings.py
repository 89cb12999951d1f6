"""Recorded settings: rounds in which the whole machine was slower are set right."""

from __future__ import annotations

import pytest

from benchmarks.replay.record_settings import level
from tuner.record import Status
from tuner.replay.recording import Row

INF = float("inf")


def row(number: int, *seconds: float, status: Status = Status.OK) -> Row:
    return Row(str(number), "s", str(number), "", status, seconds, 0.0, 0.0)


def test_a_round_in_which_all_were_slower_makes_nobody_slower() -> None:
    """The last six are of the fastest alone, on a machine that took twice as long."""
    first, late = (1.0,) * 6, (2.0,) * 6
    fast, slow = row(1, 5.0, *first, *late), row(2, 5.0, *(s * 1.5 for s in first), *(INF,) * 6)
    assert fast.latency_s == pytest.approx(1.5), "between the two, and as slow as the other"
    levelled = level([fast, slow])
    assert [r.latency_s for r in levelled] == [pytest.approx(1.0), pytest.approx(1.5)]
    assert [r.seconds[0] for r in levelled] == [5.0, 5.0]


def test_what_was_cut_off_keeps_its_bound() -> None:
    cut = row(2, 9.0, *(INF,) * 12, status=Status.CENSORED)
    assert level([row(1, 1.0, *(1.0,) * 6, *(2.0,) * 6), cut])[1] == cut
