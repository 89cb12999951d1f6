"""A measurer on Ray: builders compile, runners time, and neither waits for the other."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray

from cluster.pool import Pool
from cluster.ray_pool import Done, RayPool
from tuner.effort import Effort
from tuner.errors import TunerError
from tuner.record import Measurement, Provenance, Record, Status, Trial
from tuner.utilisation import BUILDER, RUNNER, Utilisation

_GRACE_S = 45.0
"""What a worker gets beyond its own deadlines before it counts as hung itself."""
_BUILT_AHEAD = 2
_BUILT_KEPT = 512
"""Artifacts of some ten kilobytes each, for kernels that will be measured again."""


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
    """

    trial: Trial
    cutoff_s: float | None
    artifact: Any
    build_s: float
    builder: str
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Starters:
    """Make the actor of a worker's name."""

    builder: Callable[[str], Any]
    runner: Callable[[str], Any]


class RayMeasurer:
    """Builds on builder actors and measures on runner actors.

    Args:
        builders: how many to run.
        runners: how many to run: one for each device.
        utilisation: told of what becomes of each of them.
        wall: seconds since the epoch, for records.
    """

    def __init__(
        self,
        starters: Starters,
        *,
        builders: int,
        runners: int,
        effort: Effort,
        utilisation: Utilisation | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._effort = effort
        self._wall = wall
        self._built: OrderedDict[tuple[str, str], tuple[Any, float]] = OrderedDict()
        self._artifacts: dict[int, Any] = {}
        build_lease_s = 2 * effort.build_deadline_s + _GRACE_S
        run_lease_s = 2 * effort.run_deadline_s + _GRACE_S
        self._builders: RayPool[BuildJob] = RayPool(
            Pool(BUILDER, lambda job: build_lease_s),
            start=starters.builder,
            call=self._call_build,
            worked_s=_build_s,
            utilisation=utilisation,
        )
        self._runners: RayPool[RunJob] = RayPool(
            Pool(RUNNER, lambda job: run_lease_s),
            start=starters.runner,
            call=self._call_run,
            worked_s=lambda measurement: float(measurement.run_s),
            utilisation=utilisation,
        )
        self._builders.resize(builders)
        self._runners.resize(runners)

    def free(self) -> int:
        """Trials that would keep builders busy and a few built programs waiting."""
        runners, builders = self._runners.state, self._builders.state
        if not runners.ready or not builders.ready:
            return 0
        wanted = builders.ready + runners.ready * (1 + _BUILT_AHEAD)
        return max(0, wanted - builders.load - runners.load)

    def submit(self, trials: Sequence[Trial], cutoff_s: float | None = None) -> None:
        """Take trials; a finalist, or a kernel for another shape, is not built again."""
        for trial in trials:
            artifact = self._built.get((trial.task_key, trial.candidate.key))
            if artifact is not None:
                self._built.move_to_end((trial.task_key, trial.candidate.key))
                self._runners.submit(RunJob(trial, cutoff_s, *artifact, builder=""))
            else:
                self._builders.submit(BuildJob(trial, cutoff_s))

    def collect(self, timeout_s: float) -> list[Record]:
        """Records that are ready, waiting at most `timeout_s` for the first.

        Raises:
            TunerError: no builder or no runner will ever start.
        """
        refs = [*self._builders.pending(), *self._runners.pending()]
        if refs:
            ray.wait(refs, num_returns=1, timeout=timeout_s, fetch_local=False)
        else:
            time.sleep(timeout_s)
        records = [
            record
            for built in self._builders.step()
            if (record := self._take_built(built)) is not None
        ]
        records += [self._take_run(done) for done in self._runners.step()]
        for pool in (self._builders.state, self._runners.state):
            if pool.broken:
                raise TunerError(pool.broken)
        return records

    def close(self) -> None:
        """Stop the workers; trials in flight are dropped."""
        self._builders.close()
        self._runners.close()

    def _call_build(self, actor: Any, job: BuildJob) -> Any:
        outcome, artifact = actor.build.remote(
            job.trial.task_key, job.trial.candidate, self._effort.build_deadline_s
        )
        self._artifacts[id(job)] = artifact
        return outcome

    def _call_run(self, actor: Any, job: RunJob) -> Any:
        timing = self._effort.timing_of(job.trial)
        return actor.run.remote(
            job.trial.task_key,
            job.artifact,
            timing,
            job.cutoff_s,
            self._effort.run_deadline_s,
            job.trial.instance,
        )

    def _take_built(self, done: Done[BuildJob]) -> Record | None:
        """Pass a built trial on to the runners, or give the record of one that failed."""
        job = done.job
        artifact = self._artifacts.pop(id(job), None)
        if done.lost:
            return self._lost(done, job.trial)
        if isinstance(done.value, Measurement):
            return self._record(job.trial, done.value, done, attempt=done.attempt)
        build_s = float(done.value)
        if job.trial.rung > 0 or job.trial.instance:  # there are more trials of it to come
            self._built[job.trial.task_key, job.trial.candidate.key] = (artifact, build_s)
            while len(self._built) > _BUILT_KEPT:
                self._built.popitem(last=False)
        self._runners.submit(
            RunJob(job.trial, job.cutoff_s, artifact, build_s, done.worker, done.attempt)
        )
        return None

    def _take_run(self, done: Done[RunJob]) -> Record:
        if done.lost:
            return self._lost(done, done.job.trial)
        measurement = replace(done.value, build_s=done.job.build_s)
        attempt = done.attempt + done.job.attempt - 1
        return self._record(done.job.trial, measurement, done, attempt=attempt)

    def _lost(self, done: Done[Any], trial: Trial) -> Record:
        measurement = Measurement(Status.LOST, error=done.lost)
        return self._record(trial, measurement, done, attempt=done.attempt)

    def _record(
        self, trial: Trial, measurement: Measurement, done: Done[Any], *, attempt: int
    ) -> Record:
        device, toolchain = done.about or ("", "")
        provenance = Provenance(done.worker, device, toolchain)
        return Record(trial, measurement, provenance, attempt, self._wall())


def _build_s(outcome: float | Measurement) -> float:
    """Seconds of building in a builder's answer, good or bad."""
    return outcome.build_s if isinstance(outcome, Measurement) else float(outcome)
