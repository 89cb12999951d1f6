"""What a search's process keeps of each record and of the time: a run with made-up workers.

Search, cost model, dataset, store and tracking are the real ones, on six tasks that were recorded
(see `tuner.replay.recording`). What workers do is made up: a draft is answered at once by a
candidate that nobody had before, whose program text is as long as a real one's, and which is
described and timed as one that was recorded. Such a space never ends, and neither TVM nor a device
is needed.
"""

from __future__ import annotations

import ctypes
import math
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.command import say
from benchmarks.fleet.core import Sought, run_core
from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.cost_models.learner import ProcessLearner
from tuner.measure import Evaluated
from tuner.record import Measurement, Provenance, Record, Status, Trial
from tuner.replay.recording import Recording, load
from tuner.search.registry import search_maker

RECORDINGS = Path(__file__).parents[1] / "recordings"
_SAMPLES = 5
_SLOTS = 64
_ROOM = 128
_LOOKS = 20
"""How often memory is looked at, in all."""
_FILLED = 0.2
"""Of the records: from then on everything that has a limit is full."""
_PAUSE_S = 30.0
"""In which nothing is measured, half way, and everything else goes on."""
_MOST_MB, _MOST_PER_RECORD, _MOST_IDLE_MB = 2048.0, 2.0, 16.0
"""Of a record there may stay as much as twice its features."""


class Endless:
    """Recorded spaces as one that never ends."""

    def __init__(self, recordings: Mapping[str, Recording]) -> None:
        self._recordings = recordings
        self._texts = {key: [*r.payloads.values()] for key, r in recordings.items()}
        self._latencies_s = {
            key: [row.latency_s for row in r.rows] for key, r in recordings.items()
        }

    def candidate(self, task_key: str, number: int, row: int) -> Candidate:
        """A candidate of its own for each number, that stands for a row of the recording."""
        texts = self._texts[task_key]
        text = f"{texts[row % len(texts)]} {number} {row}"
        return Candidate(CandidateKind.TRACE, text, self._recordings[task_key].rows[row].space)

    def answer(self, draft: Draft, model_version: int) -> Evaluated:
        """As a space worker would, whose model knows roughly how fast a candidate is."""
        recording, rng = self._recordings[draft.task_key], random.Random(draft.seed)
        row = rng.randrange(len(recording.rows))
        latency_s = self._latencies_s[draft.task_key][row]
        candidate = self.candidate(draft.task_key, rng.getrandbits(48), row)
        return Evaluated(
            draft,
            candidate,
            code_hash=f"{rng.getrandbits(64):016x}",
            score=rng.gauss(-math.log(latency_s)),
            model_version=model_version,
            features=recording.vectors[row].copy(),
            estimate_s=latency_s,
        )

    def measured(self, trial: Trial, cutoff_s: float | None) -> Measurement:
        """As it was recorded."""
        row = int(trial.candidate.payload.rpartition(" ")[2])
        latency_s = self._latencies_s[trial.task_key][row]
        if cutoff_s is not None and latency_s > cutoff_s:
            return Measurement(Status.CENSORED, (latency_s,))
        return Measurement(Status.OK, (latency_s,) * _SAMPLES)


class AnswersAtOnce:
    """A space pool that answers whatever it is asked."""

    def __init__(self, space: Endless) -> None:
        self._space = space
        self.version = 0
        self._waiting: list[Draft] = []

    def free(self) -> int:
        """Room left."""
        return _ROOM - len(self._waiting)

    def submit(self, drafts: Sequence[Draft]) -> None:
        """Take drafts."""
        self._waiting += drafts

    def collect(self, timeout_s: float) -> list[Evaluated]:
        """Answer all."""
        drafts, self._waiting = self._waiting, []
        return [self._space.answer(draft, self.version) for draft in drafts]

    def use_model(self, version: int, model: bytes) -> None:
        """Its answers bear this version from now on."""
        self.version = version

    def close(self) -> None:
        """Nothing to stop."""


class MeasuresAtOnce:
    """Measures in no time, looks at this process's memory on the way, and makes a pause.

    Args:
        records: there will be so many.
    """

    def __init__(self, space: Endless, records: int) -> None:
        self._space = space
        self._every, self._pause_at = max(1, records // _LOOKS), records // 2
        self._held: list[tuple[Trial, float | None]] = []
        self._done = 0
        self._pause_until_s: float | None = None
        self.sizes_mb: list[tuple[int, float]] = []
        self.idle_mb: list[float] = []

    def free(self) -> int:
        """Slots without a trial."""
        return _SLOTS - len(self._held)

    def submit(self, trials: Sequence[Trial], cutoff_s: float | None = None) -> None:
        """Take trials."""
        self._held += [(trial, cutoff_s) for trial in trials]

    def collect(self, timeout_s: float) -> list[Record]:
        """All of them; none in the pause."""
        if self._pauses():
            trim()
            self.idle_mb.append(rss_mb())
            time.sleep(timeout_s)
            return []
        held, self._held = self._held, []
        before, self._done = self._done, self._done + len(held)
        if self._done // self._every > before // self._every:
            self.sizes_mb.append((self._done, rss_mb()))
            say(f"{self._done} records: {self.sizes_mb[-1][1]:.0f} MB")
        where = Provenance("slot", "simulated", "simulated")
        return [
            Record(trial, self._space.measured(trial, cutoff_s), where, 1, time.time())
            for trial, cutoff_s in held
        ]

    def toolchain(self) -> str:
        """That of its records."""
        return "simulated"

    def close(self) -> None:
        """Nothing to stop."""

    def _pauses(self) -> bool:
        if self._done < self._pause_at:
            return False
        if self._pause_until_s is None:
            self._pause_until_s = time.monotonic() + _PAUSE_S
        return time.monotonic() < self._pause_until_s


def rss_mb() -> float:
    """Resident size of this process."""
    return float(psutil.Process().memory_info().rss / 2**20)


def trim() -> None:
    """Have the C library give back what it only keeps for later."""
    ctypes.CDLL(None).malloc_trim(0)


def measure_memory(folder: Path, records: int) -> dict[str, Any]:
    """Take in so many records, and judge what stays of them."""
    recordings = {r.task.key: r for r in map(load, sorted(RECORDINGS.glob("*.npz")))}
    space = Endless(recordings)
    measurer, pool = MeasuresAtOnce(space, records), AnswersAtOnce(space)
    learner = ProcessLearner(seed=0, log=folder / "learner.log")
    sought = Sought(
        [recording.task for recording in recordings.values()],
        {key: space.candidate(key, -1, 0) for key in recordings},
        search_maker("evolutionary"),
        pool,
        learner,
    )
    try:
        went = run_core(measurer, folder / "memory", records, sought=sought, limit_s=1200.0)
    finally:
        learner.close()
    features = max(recording.vectors.shape[1] for recording in recordings.values())
    found = judged(measurer.sizes_mb, measurer.idle_mb, features)
    return {
        "records": went.records,
        **found,
        "sizes_mb": measurer.sizes_mb,
        "models_fitted": pool.version,
        "passed": found["passed"] and went.records >= records and pool.version > 0,
    }


def judged(
    sizes_mb: Sequence[tuple[int, float]], idle_mb: Sequence[float], features: int
) -> dict[str, Any]:
    """What memory was at some numbers of records, and whether it is as it may be.

    Args:
        idle_mb: what it was while nothing was measured, from the first to the last look.
        features: that each record has.
    """
    records, sizes = zip(*sizes_mb, strict=True)
    full = [place for place, number in enumerate(records) if number >= _FILLED * records[-1]]
    slope, _ = np.polyfit([records[p] for p in full], [sizes[p] for p in full], 1)
    grown_mb = idle_mb[-1] - idle_mb[0] if idle_mb else 0.0
    kb_per_record, features_kb = 1024 * float(slope), 4 * features / 1024
    return {
        "peak_mb": max(sizes),
        "kb_per_record": kb_per_record,
        "features_kb_per_record": features_kb,
        "most_kb_per_record": _MOST_PER_RECORD * features_kb,
        "grown_in_idle_time_mb": grown_mb,
        "passed": max(sizes) < _MOST_MB
        and kb_per_record <= _MOST_PER_RECORD * features_kb
        and grown_mb <= _MOST_IDLE_MB,
    }
