"""Pairs near the best are ordered better by what a search has learned than by the estimate."""

from __future__ import annotations

import pytest

from benchmarks.replay.pairs import judge
from benchmarks.replay.policies import RECORDINGS
from tuner.replay.noise import NOISES
from tuner.replay.recording import load


@pytest.mark.parametrize("noise", ["none", "tailed"])
def test_the_process_orders_more_pairs_than_the_estimate(noise: str) -> None:
    recording = load(RECORDINGS / "settings" / "gemm-odd.npz")
    shares = judge(recording, 24, 0, NOISES[noise])
    assert 0.5 < shares["estimate"] < shares["process"] < 1.0
