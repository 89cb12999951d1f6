"""A template's settings on a grid, with a true time for each."""

from __future__ import annotations

import numpy as np

from tuner.arrays import Features, Floats, Ints32
from tuner.candidate import Candidate, Draft, knobs_of, of_knobs
from tuner.measure import Evaluated, Settings
from tuner.record import Measurement, Record, Status, Trial
from tuner.search.pool.settings_pool import SettingsPool
from tuner.task import Task

TASK = Task("task", "task", "{}", "{}")
SPACE, OTHER = "kernel:grid-1", "kernel:other-1"
KNOBS = ("rows", "lanes")
SIDE = 12


def settings(
    values: list[tuple[int, int]] | None = None, *, space: str = SPACE, slower: float = 1.0
) -> Settings:
    """Settings whose estimates grow with the number of rows; the whole grid by default."""
    found = values or [(rows, lanes) for rows in range(SIDE) for lanes in range(SIDE)]
    table = np.array(found, dtype=np.int32)
    estimates_s = slower * 1e-3 * (1.0 + 0.02 * table[:, 0])
    return Settings(space, KNOBS, table, _features(table, estimates_s))


def _features(table: Ints32, estimates_s: Floats) -> Features:
    first = [np.ones(len(table)), np.log2(estimates_s)]
    return np.column_stack([*first, table]).astype(np.float32)


def pool(*parts: Settings) -> SettingsPool:
    """A pool with these settings."""
    made = SettingsPool()
    made.add(parts or [settings()])
    return made


def candidate(rows: int, lanes: int, space: str = SPACE) -> Candidate:
    """The candidate of a setting."""
    return of_knobs({"rows": rows, "lanes": lanes}, space)


def true_s(of: Candidate) -> float:
    """The least at 6 rows and 8 lanes, which the estimate does not know."""
    knobs = knobs_of(of) or {}
    return 1e-3 * (1.0 + 0.05 * abs(knobs["rows"] - 6) + 0.05 * abs(knobs["lanes"] - 8))


def record(of: Candidate, latency_s: float | None = -1.0) -> Record:
    """The record of a candidate: its true time where none is given; None for a failure."""
    if latency_s is None:
        return Record(Trial(TASK.key, of), Measurement(Status.WRONG, error="wrong"))
    measured = true_s(of) if latency_s < 0 else latency_s
    return Record(Trial(TASK.key, of), Measurement(Status.OK, (measured,)))


def listing(draft: Draft, *parts: Settings, error: str = "") -> Evaluated:
    """The answer to a draft of a listing."""
    return Evaluated(draft, settings=parts, error=error)
