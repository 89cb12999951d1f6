"""Our side: kernels of each workload's space, drawn and built on all cores, checked and timed.

A short evolution without a cluster: fresh samples, then mutants of the best three, by the product's
own space, builder, check and timing.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from actors.runner import Runner
from benchmarks.figures import rank_correlation
from benchmarks.gpu.predicted import predict_s
from benchmarks.gpu.workloads import Workload
from tuner.candidate import Candidate, Draft
from tuner.effort import EFFORTS
from tuner.errors import first_line
from tuner.record import Measurement, Status
from tuner.task import Instance

_PARENTS = 3
_DRAFTS_TRIED = 20
_RUN_DEADLINE_S, _REFERENCE_DEADLINE_S = 20.0, 120.0


@dataclass(frozen=True, slots=True)
class Sample:
    """A kernel of a workload's space.

    Attributes:
        artifact: compiled; empty where that failed, for the reason `error`.
        predicted_s: its space's estimate, or where that has none, see `predicted`.
    """

    workload: str
    candidate: Candidate | None = None
    artifact: bytes = b""
    error: str = ""
    predicted_s: float | None = None
    build_s: float = 0.0


@dataclass(slots=True)
class Side:
    """All that was found of one workload."""

    workload: Workload
    target: str
    timed: list[tuple[Sample, float]] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    run_s: list[float] = field(default_factory=list)
    by_rows_s: dict[int, float] = field(default_factory=dict)
    conditions: dict[str, Any] = field(default_factory=dict)

    def add(self, sample: Sample, measured: Measurement | None) -> None:
        """Count a kernel, and keep its time."""
        self.ended["no build" if measured is None else str(measured.status)] += 1
        error = sample.error if measured is None else measured.error
        if error and len(self.errors) < 3:
            self.errors.append(error[:200])
        if measured is not None:
            self.run_s.append(measured.run_s)
            self.conditions = measured.conditions.to_json() or self.conditions
            if measured.latency_s is not None:
                self.timed.append((sample, measured.latency_s))
                self.timed.sort(key=lambda pair: pair[1])

    @property
    def best(self) -> tuple[Sample, float] | None:
        """The fastest kernel, with its seconds."""
        return self.timed[0] if self.timed else None

    def each_space(self) -> list[Sample]:
        """The fastest kernel of each space that gave a right one."""
        found: dict[str, Sample] = {}
        for sample, _ in self.timed:
            assert sample.candidate is not None
            found.setdefault(sample.candidate.space, sample)
        return list(found.values())

    def to_json(self) -> dict[str, Any]:
        """What to write down."""
        pairs = [(_us(sample.predicted_s), took_s * 1e6) for sample, took_s in self.timed]
        known = [(guess, us) for guess, us in pairs if guess is not None]
        return {
            "best_us": pairs[0][1] if pairs else None,
            "predicted_us": pairs[0][0] if pairs else None,
            "ranks_predicted": rank_correlation([g for g, _ in known], [us for _, us in known]),
            "by_rows_us": {rows: s * 1e6 for rows, s in self.by_rows_s.items()},
            "ended": dict(self.ended),
            "errors": self.errors,
            "build_s": _mean([sample.build_s for sample, _ in self.timed]),
            "run_s": _mean(self.run_s),
            "predicted_and_measured_us": pairs,
            "conditions": self.conditions,
        }


@lru_cache(maxsize=32)
def _space(workload: Workload, target: str) -> Any:
    from spaces.design_space.task_space import TaskSpace

    task = workload.task(target)
    return task, TaskSpace(task)


def draw(workload: Workload, target: str, number: int, parent: Candidate | None) -> Sample:
    """Draw a schedule and compile it. In a process of a pool, which keeps the space."""
    from actors.build_child import BuildChild
    from spaces.ir.schedules import InvalidCandidate

    started_s, why = time.perf_counter(), ""
    task, space = _space(workload, target)
    for turn in range(_DRAFTS_TRIED):
        seed = number * _DRAFTS_TRIED + turn
        try:
            point = space.realize_draft(Draft(task.key, seed, 1 + seed, parent))
        except InvalidCandidate as error:
            why = first_line(error)
            continue
        child = BuildChild()
        child.learn(task)
        answer = child.build(task.key, point.candidate)
        build_s = time.perf_counter() - started_s
        if answer.artifact:
            guess_s = point.estimate_s
            if guess_s is None and point.schedule is not None:
                guess_s = predict_s(point.schedule.mod, target)
            return Sample(workload.name, point.candidate, answer.artifact, "", guess_s, build_s)
        why = answer.error
    return Sample(workload.name, error=why)


@contextmanager
def builders() -> Iterator[ProcessPoolExecutor]:
    """A pool of processes that draw and build, one for each core."""
    cores = len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, mp_context=context, initializer=_start_lean) as pool:
        yield pool


def _start_lean() -> None:
    """Builders see no device, as the product's do: a context of theirs would take memory and time
    from the kernels that are timed."""
    from spaces.ir.lean_tvm import import_tvm_lean

    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import_tvm_lean()


def start(
    pool: ProcessPoolExecutor, sides: list[Side], count: int, generation: int
) -> dict[Future[Sample], Side]:
    """Begin to build the next generation of all workloads, in turns."""
    begun: dict[Future[Sample], Side] = {}
    for number in range(count):
        for side in sides:
            parents = [sample.candidate for sample, _ in side.timed[:_PARENTS]]
            parent = parents[number % len(parents)] if parents and generation else None
            at = generation * count + number
            begun[pool.submit(draw, side.workload, side.target, at, parent)] = side
    return begun


def measure(
    runner: Runner,
    begun: dict[Future[Sample], Side],
    until_s: float,
    note: Callable[[Side], object],
) -> None:
    """Check and time kernels as they are built, until a moment of the monotonic clock.

    Args:
        note: gets a side whenever more is known of it.
    """
    known: dict[str, str] = {}
    left_s = max(0.1, until_s - time.monotonic())
    try:
        for ready in as_completed(begun, timeout=left_s):
            side, sample = begun[ready], ready.result()
            if not sample.artifact:
                side.add(sample, None)
                note(side)
                continue
            task, _ = _space(side.workload, side.target)
            instance = side.workload.largest
            if side.workload.name not in known:
                learned = runner.learn(task, instance, _REFERENCE_DEADLINE_S)
                known[side.workload.name] = learned.error
            side.add(sample, _run(runner, side, sample, instance))
            note(side)
            if time.monotonic() > until_s:
                raise TimeoutError
    except TimeoutError:
        for future in begun:
            future.cancel()


def time_rows(runner: Runner, side: Side) -> None:
    """Time the best kernel for open sizes on each of them."""
    if side.best is None:
        return
    task, _ = _space(side.workload, side.target)
    for rows in side.workload.rows:
        instance = side.workload.instance(rows)
        if runner.learn(task, instance, _REFERENCE_DEADLINE_S).error:
            continue
        measured = _run(runner, side, side.best[0], instance)
        if measured.status is Status.OK and measured.latency_s is not None:
            side.by_rows_s[rows] = measured.latency_s


def time_other(runner: Runner, side: Side, sample: Sample) -> dict[str, Any]:
    """Check and time another's kernel of known sizes: `best_us`, or how it ended."""
    task, _ = _space(side.workload, side.target)
    if not sample.artifact:
        return {"best_us": None, "error": sample.error}
    if error := runner.learn(task, (), _REFERENCE_DEADLINE_S).error:
        return {"best_us": None, "error": error}
    measured = _run(runner, Side(side.workload, side.target), sample, ())
    return {"best_us": _us(measured.latency_s), "error": measured.error}


def _run(runner: Runner, side: Side, sample: Sample, instance: Instance) -> Measurement:
    task, _ = _space(side.workload, side.target)
    timing = EFFORTS["normal"].timing
    best_s = side.best[1] if side.best and instance == side.workload.largest else None
    return runner.run(
        task,
        sample.artifact,
        timing=timing,
        cutoff_s=timing.cutoff_s(best_s),
        deadline_s=_RUN_DEADLINE_S,
        instance=instance,
    )


@contextmanager
def runner_of(target: str, folder: Path) -> Iterator[Runner]:
    """A runner on this machine's device."""
    runner = Runner(target=target, log_dir=folder, scratch=folder / "references")
    with closing(runner):
        yield runner


def lay_out(side: Side, sample: Sample, folder: Path) -> str:
    """Leave a kernel for `benchmarks.gpu.sanitized`, and return its name there."""
    space = "" if sample.candidate is None else sample.candidate.space
    name = re.sub(r"\W+", "-", f"{side.workload.name} {space}")
    (folder / f"{name}.artifact").write_bytes(sample.artifact)
    known = {"target": side.target, "arguments": shapes(side)}
    (folder / f"{name}.json").write_text(json.dumps(known))
    return name


def shapes(side: Side) -> list[tuple[list[int], str]]:
    """Shapes and types of the arguments of a workload's program; of the least one that is timed
    where its sizes are open."""
    import tvm

    from spaces.check.draws import arguments
    from spaces.ir.symbolic import specialise

    task, _ = _space(side.workload, side.target)
    module = specialise(tvm.ir.load_json(task.module), dict(side.workload.least))
    return [(list(argument.shape), argument.dtype) for argument in arguments(module["main"])]


def _us(seconds: float | None) -> float | None:
    return None if seconds is None or not math.isfinite(seconds) else seconds * 1e6


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
