"""A measurer without a cluster: one builder and one runner of this process, a thread each."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from actors.build_child import NOTHING, Written
from actors.builder import Builder, Built
from actors.runner import Learned, Runner
from tuner.candidate import library_space
from tuner.effort import EFFORTS, Effort
from tuner.measure import BuildDeadlines, BuiltKernels, MeasuredPrograms
from tuner.record import Measurement, Provenance, Record, Status, Trial
from tuner.task import Instance, Task

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_AHEAD = 3
"""Trials taken at once: one being built, one being run, one that waits for either."""


@dataclass(frozen=True, slots=True)
class _Job:
    trial: Trial
    cutoff_s: float | None


@dataclass(frozen=True, slots=True)
class _Artifact:
    job: _Job
    built: Built


class InlineMeasurer:
    """Implements `tuner.measure.Measurer`: builds the next trial while one is timed.

    It owns its builder and its runner.

    Args:
        tasks: the tasks that trials may name.
        effort: rules of timing, and the deadlines.
        provenance: provenance for every record.
        clock: seconds since the epoch.
        programs: those that have a time already.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        builder: Builder,
        runner: Runner,
        *,
        effort: Effort = EFFORTS["normal"],
        provenance: Provenance = Provenance("inline"),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.time,
        programs: MeasuredPrograms | None = None,
    ) -> None:
        self._programs = programs or MeasuredPrograms()
        self._build_deadlines = BuildDeadlines(effort.build_deadline_s)
        self._built: BuiltKernels[Built] = BuiltKernels(effort.finalists)
        self._tasks = {task.key: task for task in tasks}
        self._builder, self._runner = builder, runner
        self._effort, self._provenance, self._clock = effort, provenance, clock
        self._to_build: queue.Queue[_Job | None] = queue.Queue()
        self._to_run: queue.Queue[_Artifact | None] = queue.Queue()
        self._done: queue.Queue[Record] = queue.Queue()
        self._in_flight = 0  # the caller's thread alone counts
        self._references: dict[tuple[str, Instance], Learned] = {}  # the runner's thread fills it
        # The children of builder and runner are made on these threads and die with them.
        self._threads = [
            threading.Thread(target=self._build_all, name="inline-builder", daemon=True),
            threading.Thread(target=self._run_all, name="inline-runner", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def free(self) -> int:
        """Number of further trials that can be taken now."""
        return max(0, _AHEAD - self._in_flight)

    def submit(self, trials: Sequence[Trial], cutoff_s: float | None = None) -> None:
        """Take trials.

        Raises:
            KeyError: a trial names an unknown task; none was taken.
        """
        unknown = [trial.task_key for trial in trials if trial.task_key not in self._tasks]
        if unknown:
            raise KeyError(unknown[0])
        self._in_flight += len(trials)
        for trial in trials:
            self._to_build.put(_Job(trial, cutoff_s))

    def collect(self, timeout_s: float) -> list[Record]:
        """Records that are ready, waiting at most `timeout_s` for the first."""
        records: list[Record] = []
        try:
            records.append(self._done.get(timeout=timeout_s))
            while True:
                records.append(self._done.get_nowait())
        except queue.Empty:
            self._in_flight -= len(records)
            return records

    def toolchain(self) -> str:
        """See `tuner.measure.Measurer`; the provenance's."""
        return self._provenance.toolchain

    def close(self) -> None:
        """Stop both threads and their children. Trials that were not begun are dropped, trials that
        were built are still run. Waits a build's and a run's deadline for each thread, then leaves
        it to end with the process."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._to_build.get_nowait()
        self._to_build.put(None)
        wait_s = self._effort.build_deadline_s + self._effort.run_deadline_s
        for thread in self._threads:
            thread.join(wait_s)

    def _build_all(self) -> None:
        while (job := self._to_build.get()) is not None:
            if (kept := self._built.find(job.trial)) is not None:
                self._to_run.put(_Artifact(job, kept))
                continue
            task = self._tasks[job.trial.task_key]
            known = self._references.get((job.trial.task_key, job.trial.instance))
            if known is not None and known.error:
                self._answer(job.trial, _skip_check(known))
                continue
            deadline_s = self._build_deadlines.of(job.trial)
            built = _guard(partial(self._builder.build, task, job.trial.candidate, deadline_s))
            if isinstance(built, Built):
                self._build_deadlines.built(task.key, built.build_s)
                self._built.add(job.trial, built)
                self._to_run.put(_Artifact(job, built))
            else:
                self._answer(job.trial, built)
        self._builder.close()
        self._to_run.put(None)

    def _run_all(self) -> None:
        while (ready := self._to_run.get()) is not None:
            trial, written = ready.job.trial, ready.built.written
            measured = self._programs.reused(trial, written.code_hash, ready.built.build_s)
            if measured is None:
                measured = _guard(partial(self._run, ready))
            measured = replace(measured, build_s=ready.built.build_s)
            self._built.settle(trial, measured.latency_s, ready.built)
            self._answer(trial, measured, written)
        self._runner.close()

    def _learn(self, trial: Trial) -> Learned:
        """The reference of a trial's task on its shape, made once."""
        key = (trial.task_key, trial.instance)
        if key not in self._references:
            task, deadline_s = self._tasks[trial.task_key], self._effort.reference_deadline_s
            self._references[key] = self._runner.learn(task, trial.instance, deadline_s)
        return self._references[key]

    def _run(self, ready: _Artifact) -> Measurement:
        trial = ready.job.trial
        for _ in range(2):  # a child that was replaced has lost its references
            if (known := self._learn(trial)).error:
                return _skip_check(known)
            measured = self._measure(ready)
            if measured.status is not Status.UNCHECKED:
                break
            del self._references[trial.task_key, trial.instance]
        return measured

    def _measure(self, ready: _Artifact) -> Measurement:
        effort, trial = self._effort, ready.job.trial
        return self._runner.run(
            self._tasks[trial.task_key],
            ready.built.artifact,
            timing=effort.timing_of(trial),
            cutoff_s=ready.job.cutoff_s,
            deadline_s=effort.run_deadline_s,
            instance=trial.instance,
            library=library_space(trial.candidate),
        )

    def _answer(self, trial: Trial, measurement: Measurement, written: Written = NOTHING) -> None:
        trial = replace(trial, candidate=written.of(trial.candidate))
        record = Record(
            trial,
            measurement,
            self._provenance,
            time_s=self._clock(),
            code_hash=written.code_hash,
        )
        self._programs.add(record)
        self._done.put(record)


def _skip_check(known: Learned) -> Measurement:
    return Measurement(Status.UNCHECKED, error=f"reference output: {known.error}")


def _guard(work: Callable[[], _T]) -> _T | Measurement:
    """The border of a thread: an error of a worker ends its trial, not the thread."""
    try:
        return work()
    except Exception as error:
        _log.warning("worker failed: %s", error)
        return Measurement(Status.LOST, error=str(error))
