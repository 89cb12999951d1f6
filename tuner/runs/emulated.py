"""Runs on the emulated device: their times are a model's, and stay among themselves."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import TunerError
from tuner.request.target_text import is_emulated
from tuner.run_location import RunLocation


def refuse_emulated(run: RunLocation | Path, target_json: str, why: str) -> None:
    """Refuse the records of a run on the emulated device.

    Args:
        target_json: the run's.
        why: they are of no use.

    Raises:
        TunerError: it is such a run.
    """
    if is_emulated(target_json):
        raise TunerError(f"{run} has times of the emulated device, which are a model's: {why}")
