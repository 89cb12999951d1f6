"""Record the settings of a task's templates: as many as a search would weigh, six rounds of each.

    python -m benchmarks.replay.record_settings [--settings 720] [--cores 2] [--out DIR] [TASK ...]

Writes `DIR/TASK.npz`. A third of the settings are the best by estimate, in equal parts of each
template; a third are drawn from the other feasible ones, each as likely; the others are mutations
of the best so far. All are built by the tuner's workers, checked, timed once, and then timed in six
interleaved rounds, the fastest 64 in twelve more: of hundreds the fastest of six rounds would be
the luckiest. A round in which all were slower than in others is set right. The median of the rounds
is the true time that policies are judged by, their spread the noise. One slower than 12 times the
best is cut off and has its bound alone.

What was measured is kept in `--work`: after a kill, the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.replay.command import record_tasks
from benchmarks.replay.policies import RECORDINGS
from benchmarks.replay.programs import HELD_OUT
from benchmarks.replay.record_space import agreement, measure_default, recording_of
from benchmarks.replay.recorder import Bench, bench
from tuner.candidate import Candidate, Draft, knobs_of, of_knobs
from tuner.measure import Evaluated
from tuner.record import Status
from tuner.replay.recording import Row, save
from tuner.task import Task

if TYPE_CHECKING:
    from spaces.design_space.knob_space import KnobSpace

_ROUNDS = 6
_FASTEST, _ROUNDS_OF_FASTEST = 64, 18
_BATCH = 48
_PARENTS, _RANK_DECAY = 16, 0.85
_NUDGED = 64
_DRY = 10
"""Batches in a row without a new program, after which a space has no more."""


def record(task: Task, options: argparse.Namespace) -> dict[str, Any]:
    """Record one task and write its file; what to say of it."""
    start_s = time.monotonic()
    with bench(task, options.work, options.cores) as at:
        fill(at, options.settings, seed=options.seed)
        timed = {r.trial.candidate.key: r.trial.candidate for r in at.journal.store.scan(task.key)}
        at.retime(
            [r.trial.candidate for r in at.journal.store.scan(task.key, fastest=10**6)],
            _ROUNDS,
        )
        default = measure_default(at)
        fastest = recording_of(at, default, _ROUNDS).best_keys(_FASTEST)
        at.retime([timed[key] for key in fastest], _ROUNDS_OF_FASTEST)
        recording = recording_of(at, default, _ROUNDS_OF_FASTEST)
        payloads = {r.key: timed[r.key].payload for r in recording.rows}
        recording = replace(recording, rows=level(recording.rows), payloads=payloads)
    save(recording, path := options.out / f"{task.name}.npz")
    rounds = slice(1, 1 + _ROUNDS)
    times = np.array([r.seconds[rounds] for r in recording.rows if r.status is Status.OK])
    spread = np.log(times).std(axis=1)
    return {
        "settings": len(recording.rows),
        "failed": sum(r.status not in (Status.OK, Status.CENSORED) for r in recording.rows),
        "censored": sum(r.status is Status.CENSORED for r in recording.rows),
        "best_ms": recording.best_s * 1e3,
        "spread_of_rounds": {q: float(np.quantile(spread, q)) for q in (0.5, 0.9)},
        "agreement": agreement(recording),
        "bytes": path.stat().st_size,
        "seconds": time.monotonic() - start_s,
    }


def level(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows, each round divided by how much longer it took than the first ones of all rows: a
    machine that became slower between two rounds made no setting worse than another."""
    seconds = np.array([row.seconds for row in rows if row.status is Status.OK])
    seconds[~np.isfinite(seconds)] = np.nan
    usual = np.nanmedian(seconds[:, 1 : 1 + _ROUNDS], axis=1, keepdims=True)
    factors = np.nanmedian(seconds / usual, axis=0)
    factors[0] = 1.0  # the search's times came one by one, as the machine was
    return tuple(
        replace(row, seconds=tuple(s / f for s, f in zip(row.seconds, factors, strict=True)))
        for row in rows
    )


def fill(at: Bench, settings: int, *, seed: int) -> None:
    """Record until there are so many distinct programs, or nothing new turns up."""
    from spaces.design_space.task_space import TaskSpace

    spaces = TaskSpace(at.task).templates
    given = list(_draw_given(spaces, 2 * settings // 3, random.Random(seed)))
    while fresh := given[at.journal.number - 1 :][:_BATCH]:
        _take(at, [_answer(at, n, c, None, spaces) for n, c in enumerate(fresh)])
    dry = 0
    while (before := len(at.journal.codes())) < settings and dry < _DRY:
        children = list(_children(at, spaces, min(_BATCH, settings - before)))
        _take(at, [_answer(at, n, c, p, spaces) for n, (c, p) in enumerate(children)])
        dry = dry + 1 if len(at.journal.codes()) == before else 0


def _draw_given(spaces: Sequence[KnobSpace], count: int, rng: random.Random) -> Iterator[Candidate]:
    """The best settings by estimate, and as many others, drawn; mixed, since machines drift."""
    chosen = []
    for space in spaces:
        best = count // 2 // len(spaces)
        others = space.ranked[best:]
        drawn = rng.sample(others, min(len(others), count // len(spaces) - best))
        chosen += [of_knobs(knobs, space.name) for knobs in [*space.ranked[:best], *drawn]]
    rng.shuffle(chosen)
    yield from chosen


def _children(
    at: Bench, spaces: Sequence[KnobSpace], count: int
) -> Iterator[tuple[Candidate, Candidate]]:
    """Settings near the fastest that are not known, each with its parent."""
    from spaces.templates.base import nudge, setting

    known = {d.key for d in at.journal.drawn}
    best = [r.trial.candidate for r in at.journal.store.scan(at.task.key, fastest=_PARENTS)]
    weights = [_RANK_DECAY**n for n in range(len(best))]
    rng = np.random.default_rng(at.journal.number)
    for parent in random.Random(at.journal.number).choices(best, weights, k=count):
        template = next(s.template for s in spaces if s.name == parent.space)
        columns = nudge(template, knobs_of(parent) or {}, _NUDGED, rng)
        feasible = np.flatnonzero(np.isfinite(template.costs_s(columns)))
        near = (of_knobs(setting(columns, int(row)), parent.space) for row in feasible)
        if (child := next((c for c in near if c.key not in known), None)) is not None:
            known.add(child.key)
            yield child, parent


def _answer(
    at: Bench,
    place: int,
    candidate: Candidate,
    parent: Candidate | None,
    spaces: Sequence[KnobSpace],
) -> Evaluated:
    point = next(s for s in spaces if s.name == candidate.space).describe(knobs_of(candidate) or {})
    draft = Draft(at.task.key, at.journal.number + place, 0, parent)
    return Evaluated(draft, candidate, features=point.features, estimate_s=point.estimate_s)


def _take(at: Bench, answers: Sequence[Evaluated]) -> None:
    at.take(answers)
    print(json.dumps({at.task.name: len(at.journal.codes())}), file=sys.stderr, flush=True)


def main(argv: Sequence[str]) -> int:
    """Record the tasks that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--settings", type=int, default=720)
    return record_tasks(parser, argv, record, default=HELD_OUT, out=RECORDINGS / "held_out")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
