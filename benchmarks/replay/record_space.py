"""Record whole spaces: what thousands of candidates of a task look like, and how fast they are.

    python -m benchmarks.replay.record_space [--candidates 2000] [--cores 2] [--out DIR] [TASK ...]

Writes `benchmarks/recordings/TASK.npz` (see `tuner.replay.recording`), which search policies are
compared on and cost models judged by, without a device. Candidates are what the tuner proposes,
through its own workers: fresh samples first, then mutations of the best so far, so that the
neighbourhood of the best is dense; failures are kept. In turns, as many processes as `--cores` make
and build a batch, then each kernel is checked and timed alone, briefly, and one slower than 12
times the best is cut off. In the end the fastest and some others are timed again, interleaved.
Then, for tasks with similar ones in DIR, some mutations of those tasks' best are recorded as well.

What was measured is kept in `--work`: after a kill, the same command goes on. Prints one JSON
object: for each task its failures, how long it took, and the share of pairs that a second timing
orders as the first did. Where that is not close to 1 the machine was busy, and the recording is
worth little.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.replay.command import record_tasks
from benchmarks.replay.policies import RECORDINGS
from benchmarks.replay.programs import PROGRAMS
from benchmarks.replay.recorder import AGAIN, Bench, bench
from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.cost_models.base import pairwise_accuracy
from tuner.record import Measurement, Status
from tuner.replay.recording import Recording, Row, load, save
from tuner.search.transfer import signature, similarity
from tuner.task import Task

_BATCH = 48
"""Drafts for each process between two rounds of timing."""
_SAMPLED = 0.5
"""Of the candidates, that are fresh samples before mutations begin."""
_FRESH_LATER = 0.1
_PARENTS = 32
_RANK_DECAY = 0.9
_RETIMED_BEST, _RETIMED_OTHERS = 32, 32
_ROUNDS = 3
_PAYLOADS = 8
_FOREIGN_PARENTS, _FOREIGN_CHILDREN = 4, 6
_ALIKE = 0.5


def fill(at: Bench, candidates: int, *, seed: int, batch: int) -> None:
    """Record until there are so many distinct candidates, or nothing new turns up."""
    dry = 0
    while len(at.journal.codes()) < candidates and dry < 20:
        before = len(at.journal.codes())
        room = candidates - before
        at.draw(_drafts(at, min(batch, 2 * room), before < _SAMPLED * candidates, seed))
        dry = dry + 1 if len(at.journal.codes()) == before else 0


def _drafts(at: Bench, count: int, sampling: bool, seed: int) -> list[Draft]:
    """A batch: fresh samples in the first part, later mostly mutations of the best so far."""
    best = [r.trial.candidate for r in at.journal.store.scan(at.task.key, fastest=_PARENTS)]
    weights = [_RANK_DECAY**n for n in range(len(best))]
    drafts = []
    for number in range(at.journal.number, at.journal.number + count):
        rng = random.Random(f"{seed}/{at.task.key}/{number}")
        fresh = sampling or not best or rng.random() < _FRESH_LATER
        parent = None if fresh else rng.choices(best, weights)[0]
        drafts.append(Draft(at.task.key, number, rng.randrange(2**31), parent))
    return drafts


def time_again(at: Bench, seed: int) -> None:
    """Time the fastest once more, and some others to see how far timings agree."""
    best = [r.trial.candidate for r in at.journal.store.scan(at.task.key, fastest=10**6)]
    rest = best[_RETIMED_BEST:]
    others = random.Random(seed).sample(rest, min(_RETIMED_OTHERS, len(rest)))
    at.retime([*best[:_RETIMED_BEST], *others], _ROUNDS)


def draw_foreign(at: Bench, recordings: Sequence[Recording], *, seed: int, batch: int) -> int:
    """Record mutations of what is best for similar tasks; how many drafts were carried out."""
    mine = signature(at.task.module)
    known = {d.parent for d in at.journal.drawn}
    drafts: list[Draft] = []
    for other in recordings:
        if other.task.key == at.task.key or other.task.target != at.task.target:
            continue
        if similarity(mine, signature(other.task.module)) < _ALIKE:
            continue
        for parent in _best_of(other):
            if parent.key in known:
                continue
            for _ in range(_FOREIGN_CHILDREN):
                number = at.journal.number + len(drafts)
                rng = random.Random(f"{seed}/{at.task.key}/{number}")
                drafts.append(Draft(at.task.key, number, rng.randrange(2**31), parent))
    for n in range(0, len(drafts), batch):
        at.draw(drafts[n : n + batch])
    return len(drafts)


def _best_of(recording: Recording) -> list[Candidate]:
    spaces = {row.key: row.space for row in recording.rows}
    keys = [k for k in recording.best_keys(_FOREIGN_PARENTS) if k in recording.payloads]
    return [Candidate(CandidateKind.TRACE, recording.payloads[k], spaces[k]) for k in keys]


def recording_of(at: Bench, default: Measurement, rounds: int = _ROUNDS) -> Recording:
    """All that the journal holds, as one recording, with this number of later rounds."""
    from spaces.targets.target import device_fingerprint

    store, task = at.journal.store, at.task
    vectors = store.features(task.key)
    drawn = {d.key: d for d in at.journal.drawn if d.key and not d.repeat}
    later: dict[str, list[float]] = {}
    for record in store.scan(task.key, min_rung=1):
        later.setdefault(record.trial.candidate.key, []).append(record.latency_s or math.inf)
    payloads: dict[str, str] = {}
    rows: list[Row] = []
    for record in store.scan(task.key):
        key, measured = record.trial.candidate.key, record.measurement
        if record.trial.rung or key not in drawn or key not in vectors:
            continue
        payloads[key] = record.trial.candidate.trace or record.trial.candidate.payload
        estimate_s = record.predicted.estimate_s if record.predicted else None
        first = record.latency_s or min(measured.samples_s, default=math.inf)
        seconds = [first, *later.get(key, []), *[math.inf] * rounds][: 1 + rounds]
        rows.append(
            Row(
                key=key,
                space=record.trial.candidate.space,
                code_hash=drawn[key].code_hash,
                parent=drawn[key].parent,
                status=measured.status,
                seconds=tuple(seconds),
                build_s=measured.build_s,
                run_s=measured.run_s,
                estimate_s=math.inf if estimate_s is None else estimate_s,
            )
        )
    whole = Recording(
        task=task,
        device=device_fingerprint(task.target),
        features=_features_version(),
        rows=tuple(rows),
        vectors=np.array([vectors[r.key] for r in rows], dtype=np.float32),
        default=default,
        refused=at.journal.refused(),
    )
    kept = whole.best_keys(_PAYLOADS)
    return replace(
        whole,
        payloads={key: payloads[key] for key in kept},
        exact={key: vectors[key] for key in kept},
    )


def _features_version() -> str:
    from spaces.features.vectors import FEATURE_VERSION

    return FEATURE_VERSION


def measure_default(at: Bench) -> Measurement:
    """The task's default schedule, built and timed like any other."""
    from spaces.design_space.default_schedule import default_candidate

    (built,) = at.hands[0].build([default_candidate(at.task)]).result()
    return at.time(built, AGAIN, cutoff=False)


def agreement(recording: Recording) -> float:
    """Share of pairs that the second timing orders as the first did."""
    pairs = [r.seconds[:2] for r in recording.rows if r.status is Status.OK]
    timed = np.array([p for p in pairs if math.isfinite(p[1])], dtype=np.float32)
    if len(timed) < 2:
        return math.nan
    zeros = np.zeros(len(timed), dtype=np.int32)
    return pairwise_accuracy(-timed[:, 0], timed[:, 1], zeros) or 0.0


def record(task: Task, options: argparse.Namespace) -> dict[str, Any]:
    """Record one task and write its file; what to say of it."""
    start_s = time.monotonic()
    batch = _BATCH * options.cores
    with bench(task, options.work, options.cores) as at:
        fill(at, options.candidates, seed=options.seed, batch=batch)
        foreign = draw_foreign(at, _others(options.out, task), seed=options.seed, batch=batch)
        time_again(at, options.seed)
        recording = recording_of(at, measure_default(at))
    save(recording, path := options.out / f"{task.name}.npz")
    return {
        "candidates": len(recording.rows),
        "of_similar_tasks": foreign,
        "refused": sum(recording.refused),
        "failed": sum(r.status not in (Status.OK, Status.CENSORED) for r in recording.rows),
        "censored": sum(r.status is Status.CENSORED for r in recording.rows),
        "best_ms": recording.best_s * 1e3,
        "agreement": agreement(recording),
        "bytes": path.stat().st_size,
        "seconds": time.monotonic() - start_s,
    }


def _others(folder: Path, task: Task) -> list[Recording]:
    """Recordings of other tasks that are there already."""
    return [load(path) for path in sorted(folder.glob("*.npz")) if path.stem != task.name]


def main(argv: Sequence[str]) -> int:
    """Record the tasks that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--candidates", type=int, default=2000)
    return record_tasks(parser, argv, record, default=PROGRAMS, out=RECORDINGS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
