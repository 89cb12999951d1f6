"""A measurer on Ray: builders compile, runners time, and neither waits for the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray

from actors.build_child import NOTHING, Written
from actors.builder import longest_build_s
from actors.ray_actors import Compiled
from actors.runner import Learned, longest_learn_s, longest_run_s
from cluster.ray_workers.ray_pool import Done, RayPool, policy
from cluster.scaling.pool import Pool
from cluster.scaling.pool_policy import PoolCounts
from cluster.scaling.scaling_policy import BuildRatio, Node, WorkerCounts
from tuner.candidate import library_space
from tuner.effort import Effort
from tuner.errors import TunerError
from tuner.measure import BuildDeadlines, BuiltKernels, MeasuredPrograms
from tuner.record import Measurement, Provenance, Record, Status, Trial
from tuner.request.options import DEVICE_WAIT_S
from tuner.task import Instance
from tuner.utilisation import BUILDER, RUNNER, Utilisation

_GRACE_S = 45.0
"""The time that a worker gets beyond its own deadlines before it counts as hung."""
_BUILT_AHEAD = 2


@dataclass(frozen=True, slots=True)
class BuildJob:
    """A trial to compile."""

    trial: Trial
    cutoff_s: float | None


@dataclass(frozen=True, slots=True)
class RunJob:
    """A compiled trial to measure.

    Attributes:
        artifact: reference to the compiled program, which the driver never fetches.
        compiled: the builder's report on it.
    """

    trial: Trial
    cutoff_s: float | None
    artifact: Any
    compiled: Compiled


@dataclass(frozen=True, slots=True)
class Starters:
    """Functions that make an actor from a worker's name.

    Attributes:
        stop: ends an actor at once.
        suspect: is told of the machine of each lost worker.
        unlike: is told of each machine whose device is not the one that the run measures on.
    """

    builder: Callable[[str], Any]
    runner: Callable[[str], Any]
    stop: Callable[[Any], None] = ray.kill
    suspect: Callable[[str], None] = lambda node: None
    unlike: Callable[[str], None] = lambda node: None


@dataclass(frozen=True, slots=True)
class Leases:
    """The times for which workers may hold their jobs, without time that their machines are frozen.

    Attributes:
        learn_s: time to make the reference of a task.
    """

    build_s: float
    run_s: float
    learn_s: float

    @classmethod
    def of(cls, effort: Effort) -> Leases:
        """Leases no shorter than the workers' deadlines: workers that keep those are not lost."""
        return cls(
            longest_build_s(effort.build_deadline_s) + _GRACE_S,
            longest_run_s(effort.run_deadline_s) + _GRACE_S,
            longest_learn_s(effort.reference_deadline_s) + _GRACE_S,
        )


class RayMeasurer:
    """Builds on builder actors and measures on runner actors.

    Args:
        device: fingerprint of the devices to measure on; empty is that of the first ready runner.
        device_wait_s: time to wait for a machine that has room for a worker.
        leases: None is those that fit the effort's deadlines.
        utilisation: is told of each worker's events.
        programs: those that have a time already.
        wall: seconds since the epoch, for records.
    """

    def __init__(
        self,
        starters: Starters,
        *,
        effort: Effort,
        device: str = "",
        device_wait_s: float = DEVICE_WAIT_S,
        leases: Leases | None = None,
        utilisation: Utilisation | None = None,
        programs: MeasuredPrograms | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._effort = effort
        limits = policy(device_wait_s)
        self._attempts = limits.attempts
        self._wall = wall
        self._programs = programs or MeasuredPrograms()
        self._build_deadlines = BuildDeadlines(effort.build_deadline_s)
        self._built: BuiltKernels[tuple[Any, Compiled]] = BuiltKernels(effort.finalists)
        self._artifacts: dict[int, Any] = {}
        self._refused: list[Record] = []
        self._device, self._unlike = device, starters.unlike
        self._toolchain: str | None = None
        self._ratio = BuildRatio()
        leases = leases or Leases.of(effort)
        self._builders: RayPool[BuildJob] = RayPool(
            Pool(BUILDER, lambda job: leases.build_s, limits),
            start=starters.builder,
            beat=lambda actor: actor.beat.remote(),
            leave=lambda actor: actor.leave.remote(),
            stop=starters.stop,
            suspect=starters.suspect,
            refuses=self._take_toolchain,
            call=self._call_build,
            worked_s=_build_s,
            task_of=_task_of,
            utilisation=utilisation,
        )
        self._runners: RayPool[RunJob] = RayPool(
            Pool(RUNNER, lambda job: leases.run_s, limits, _needs, leases.learn_s),
            start=starters.runner,
            beat=lambda actor: actor.beat.remote(),
            leave=lambda actor: actor.leave.remote(),
            stop=starters.stop,
            suspect=starters.suspect,
            refuses=self._other_device,
            call=self._call_run,
            prepare=self._call_learn,
            unprepared=_no_reference,
            worked_s=_run_s,
            task_of=_task_of,
            utilisation=utilisation,
        )

    def resize(self, worker_counts: WorkerCounts, machines: Sequence[str] = ()) -> None:
        """Change the wanted numbers of workers; see `RayPool.resize`."""
        self._builders.resize(worker_counts.builders, machines)
        self._runners.resize(worker_counts.runners, machines)

    def on_nodes(self, nodes: Sequence[Node]) -> None:
        """Take in the machines that there are; see `RayPool.on_nodes`."""
        self._builders.on_nodes(nodes)
        self._runners.on_nodes(nodes)

    @property
    def counts(self) -> Mapping[str, PoolCounts]:
        """The numbers of workers and of trials that wait for one, by kind of worker."""
        return {BUILDER: self._builders.state.counts, RUNNER: self._runners.state.counts}

    @property
    def builders_per_runner(self) -> int:
        """The builders that keep one runner busy, as far as builds and measurements tell."""
        return self._ratio.builders

    def free(self) -> int:
        """Number of trials that would keep builders busy and a few built programs waiting."""
        runners, builders = self._runners.state, self._builders.state
        if not runners.ready or not builders.ready:
            return 0
        wanted = builders.ready + runners.ready * (1 + _BUILT_AHEAD)
        return max(0, wanted - builders.load - runners.load)

    def submit(self, trials: Sequence[Trial], cutoff_s: float | None = None) -> None:
        """Take trials; a finalist, or a kernel for another shape, is not built again."""
        for trial in trials:
            if error := self._runners.state.refused(_reference_of(trial)):
                self._refused.append(self._unchecked(trial, error))
                continue
            if (built := self._built.find(trial)) is not None:
                self._runners.submit(RunJob(trial, cutoff_s, *built))
            else:
                self._builders.submit(BuildJob(trial, cutoff_s))

    def collect(self, timeout_s: float) -> list[Record]:
        """Records that are ready, waiting at most `timeout_s` for the first.

        Raises:
            TunerError: no builder or no runner will ever start.
        """
        refs = [*self._builders.pending(), *self._runners.pending()]
        records, self._refused = self._refused, []
        if records:
            timeout_s = 0.0
        if refs:
            ray.wait(refs, num_returns=1, timeout=timeout_s, fetch_local=False)
        else:
            time.sleep(timeout_s)
        records += [
            record
            for built in self._builders.step()
            if (record := self._take_built(built)) is not None
        ]
        records += [
            record for ran in self._runners.step() if (record := self._take_run(ran)) is not None
        ]
        for pool in (self._builders.state, self._runners.state):
            if pool.broken:
                raise TunerError(pool.broken)
        return records

    def toolchain(self) -> str | None:
        """See `tuner.measure.Measurer`; the toolchain of the builder that became ready last."""
        return self._toolchain

    def close(self) -> None:
        """Stop the workers; trials in flight are dropped."""
        self._builders.close()
        self._runners.close()

    def _take_toolchain(self, about: Any) -> str:
        """Refuse no builder: kernels of different toolchains are told apart by their records."""
        self._toolchain = about.toolchain
        return ""

    def _other_device(self, about: Any) -> str:
        """Why a runner cannot be used: timings of different devices cannot be compared. Empty if it
        can."""
        self._device = self._device or about.device
        if about.device == self._device:
            return ""
        self._unlike(about.node)
        return f"its device is {about.device}"

    def _call_build(self, actor: Any, job: BuildJob) -> Any:
        outcome, artifact = actor.build.remote(
            job.trial.task_key, job.trial.candidate, self._build_deadlines.of(job.trial)
        )
        self._artifacts[id(job)] = artifact
        return outcome

    def _call_run(self, actor: Any, job: RunJob) -> Any:
        timing = self._effort.timing_of(job.trial)
        return actor.run.remote(
            job.trial.task_key,
            [job.artifact],
            job.compiled.sha256,
            timing,
            job.cutoff_s,
            self._effort.run_deadline_s,
            job.trial.instance,
            library_space(job.trial.candidate),
        )

    def _call_learn(self, actor: Any, job: RunJob) -> Any:
        key, instance = _reference_of(job.trial)
        return actor.learn.remote(key, instance, self._effort.reference_deadline_s)

    def _take_built(self, done: Done[BuildJob]) -> Record | None:
        """Pass on a built trial to the runners; return the record of a trial that failed."""
        job = done.job
        artifact = self._artifacts.pop(id(job), None)
        if done.lost:
            return self._lost(done, job.trial)
        toolchain = done.about.toolchain
        if isinstance(done.value, Measurement):
            return self._record(job.trial, done.value, done, toolchain)
        compiled = replace(done.value, toolchain=toolchain)
        self._build_deadlines.built(job.trial.task_key, compiled.build_s)
        self._ratio.built(compiled.build_s)
        known = self._programs.reused(job.trial, compiled.written.code_hash, compiled.build_s)
        if known is not None:
            return self._record(job.trial, known, done, toolchain, compiled.written)
        self._built.add(job.trial, (artifact, compiled))
        job_to_run = RunJob(job.trial, job.cutoff_s, artifact, compiled)
        self._runners.submit(job_to_run, attempt=done.attempt)
        return None

    def _take_run(self, done: Done[RunJob]) -> Record | None:
        """The record of a trial; None if its artifact was lost and is built once more."""
        job = done.job
        # Where other workers could make the reference, only this trial has found none that could.
        if done.unprepared and self._runners.state.refused(_reference_of(job.trial)):
            return self._unchecked(job.trial, done.lost)
        missing = done.missing or (done.value is None and not done.lost)
        if missing and done.attempt < self._attempts:
            self._built.drop(job.trial)
            self._builders.submit(BuildJob(job.trial, job.cutoff_s), attempt=done.attempt + 1)
            return None
        if missing or done.lost:
            return self._lost(done, job.trial)
        measurement = replace(done.value, build_s=job.compiled.build_s)
        self._ratio.ran(measurement.run_s)
        compiled = job.compiled
        record = self._record(job.trial, measurement, done, compiled.toolchain, compiled.written)
        self._programs.add(record)
        self._built.settle(job.trial, record.latency_s, (job.artifact, compiled))
        return record

    def _lost(self, done: Done[Any], trial: Trial) -> Record:
        why = done.lost or "its artifact was not what was built"
        measurement = Measurement(Status.LOST, error=why)
        return self._record(trial, measurement, done)

    def _unchecked(self, trial: Trial, error: str) -> Record:
        measurement = Measurement(Status.UNCHECKED, error=error)
        return Record(trial, measurement, time_s=self._wall())

    def _record(
        self,
        trial: Trial,
        measurement: Measurement,
        done: Done[Any],
        toolchain: str = "",
        written: Written = NOTHING,
    ) -> Record:
        device = "" if done.about is None else done.about.device
        provenance = Provenance(done.worker, device, toolchain)
        trial = replace(trial, candidate=written.of(trial.candidate))
        return Record(trial, measurement, provenance, done.attempt, self._wall(), written.code_hash)


def _build_s(outcome: Compiled | Measurement) -> float:
    """Seconds of building, from a builder's answer, good or bad."""
    return outcome.build_s


def _reference_of(trial: Trial) -> tuple[str, Instance]:
    """The need of a trial: a runner must have the reference of its task on its shape."""
    return trial.task_key, trial.instance


def _needs(job: RunJob) -> tuple[str, Instance]:
    return _reference_of(job.trial)


def _no_reference(answer: Learned | Measurement | None) -> str:
    """Why a runner has no reference, from its answer; empty if it has."""
    if isinstance(answer, Learned):
        return f"reference output: {answer.error}" if answer.error else ""
    if answer is None or answer.status is not Status.UNCHECKED:
        return ""
    return answer.error


def _run_s(answer: Learned | Measurement | None) -> float | None:
    """Seconds of running, from a runner's answer; None without an answer."""
    if isinstance(answer, Learned):
        return answer.learn_s
    return answer.run_s if answer is not None else None


def _task_of(job: BuildJob | RunJob) -> str:
    return job.trial.task_key
