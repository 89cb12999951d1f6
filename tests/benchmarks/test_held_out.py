"""The spaces that policies are judged by: what was recorded before the policies were written."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tuner.record import Status
from tuner.replay.recorded_settings import RecordedSettings
from tuner.replay.recording import load

FOLDER = Path(__file__).parents[2] / "benchmarks/recordings/held_out"
SUMS = dict(line.split("  ")[::-1] for line in (FOLDER / "SHA256SUMS").read_text().splitlines())


def test_no_space_was_exchanged_added_or_taken_away() -> None:
    files = sorted(FOLDER.glob("*.npz"))
    assert {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files} == SUMS


@pytest.mark.parametrize("name", sorted(SUMS))
def test_each_has_six_hundred_settings_of_six_rounds(name: str) -> None:
    recording = load(FOLDER / name)
    rows = [r for r in recording.recorded() if r.measurement.status is Status.OK]
    assert len(rows) >= 600
    assert all(len(row.rounds_s) >= 6 for row in rows)
    assert RecordedSettings.fits(recording.recorded())
    assert all(0 < row.estimate_s < 1 for row in recording.recorded())
