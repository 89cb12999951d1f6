"""The job of a search actor, and the state that it reports."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cluster.search.naming import search_name
from spaces.targets.backends import Backend, backend_of
from tuner.candidate import Candidate
from tuner.files.atomic import write_bytes
from tuner.layers import OURS, Layers, versions
from tuner.precision import Precision
from tuner.request.options import DEVICE_WAIT_S, TuneOptions
from tuner.run_location import RunLocation
from tuner.runs.folder import RunFolder
from tuner.search.transfer import Seeds
from tuner.task import SpaceSource, Task
from tuner.view.progress import Snapshot

_OWNER_ONLY = 0o600
"""A tracking URI may hold a password."""


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Knowledge from earlier runs that a run begins with.

    Attributes:
        name: name of the base model, version included; `none` where there is none.
        model: the base model of programs as bytes; None without one.
        priors: the base models of templates' settings as bytes, by form.
        seeds: seeds of the searches, by task key; only for tasks that have any.
    """

    name: str = "none"
    model: bytes | None = None
    priors: Mapping[str, bytes] = field(default_factory=dict)
    seeds: Mapping[str, Seeds] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of candidates among the seeds."""
        return sum(len(s.known) + len(s.parents) for s in self.seeds.values())


@dataclass(frozen=True, slots=True)
class SearchJob:
    """The job of a search actor: a request, with the tasks and settings found for it.

    Attributes:
        options: the request, with its target resolved, and without a model from memory.
        location: the run's location, valid in any working directory.
        run: the run's folder on this machine.
        tasks: the tasks, all for that target.
        defaults: the default candidate of each task.
        libraries: the candidates that call functions of libraries, by task key.
        started_s: start of the run's time, on this machine's monotonic clock; None until a trial
            can be measured.
        driver_pid: process on this machine that the search ends with; None where the search
            outlives its driver.
        device: fingerprint of the devices to measure on; empty is that of the first runner.
        tracking_uri: URI of MLflow; empty is a database inside the run folder.
        note: line for users on functions of the model that are not tuned.
        layers: what the user replaces.
        precision: types in which the model multiplies; None for its own.
    """

    options: TuneOptions
    location: RunLocation
    run: Path
    tasks: tuple[Task, ...]
    defaults: Mapping[str, Candidate]
    started_s: float | None = None
    warm_start: WarmStart = WarmStart()
    driver_pid: int | None = None
    device: str = ""
    tracking_uri: str = ""
    note: str = ""
    layers: Layers = OURS
    libraries: Mapping[str, tuple[Candidate, ...]] = field(default_factory=dict)
    precision: Precision | None = None

    @property
    def trials(self) -> int:
        """Total number of trials of the run."""
        return self.options.trials or self.options.effort.trials_per_task * len(self.tasks)

    def deadline_s(self, now_s: float) -> float:
        """Time by which the run must have ended, where its time begins at `now_s` or has begun."""
        return (now_s if self.started_s is None else self.started_s) + self.options.limit_s

    @property
    def device_wait_s(self) -> float:
        """Time to wait for a machine that has room for a worker."""
        asked_s = self.options.device_wait_s
        return DEVICE_WAIT_S if asked_s is None else asked_s

    @property
    def facts(self) -> dict[str, object]:
        """Parameters of the run as the tracker shows them."""
        options = self.options
        return {
            "model": options.model.source,
            "target": options.target,
            "trials": self.trials,
            "time_budget_s": options.limit_s,
            "until": options.until,
            "tasks": len(self.tasks),
            "seed": options.seed,
            "strategy": str(options.strategy),
            "space": options.space.name if isinstance(options.space, SpaceSource) else "ours",
            "base_model": self.warm_start.name,
            "seeds": self.warm_start.count,
            **{f"effort_{name}": value for name, value in asdict(options.effort).items()},
            **versions(self.layers),
            **({} if self.precision is None else self.precision.facts),
        }

    @property
    def backend(self) -> Backend:
        """The backend of the tasks' target."""
        return backend_of(self.options.target)

    @property
    def name(self) -> str:
        """Name of the search in Ray."""
        return search_name(self.location, self.device or self.backend.word)


def save(job: SearchJob, path: Path | None = None) -> Path:
    """Write a search job to a file, where its search finds it after each restart; see `load`.

    Args:
        path: the file, where there is one already.

    Ray keeps large arguments of an actor in the process that made the actor, which the search may
    outlive.
    """
    path = path or RunFolder(job.run).scratch / f"{job.name}.job"
    write_bytes(path, pickle.dumps(job), mode=_OWNER_ONLY)
    return path


def load(path: Path) -> SearchJob:
    """The search job that `save` wrote."""
    job = pickle.loads(path.read_bytes())
    assert isinstance(job, SearchJob)
    return job


@dataclass(frozen=True, slots=True)
class SearchState:
    """The state of a search, as its drivers see it.

    Attributes:
        snapshot: progress of the session; None before it has begun.
        ended: why the search ended; empty while it goes on.
        error: one line, where it failed.
        trace: traceback of the error, for `--debug`.
        run: the run's location.
        deadline_s: time by which it ends by itself, on its machine's monotonic clock.
    """

    snapshot: Snapshot | None
    ended: str = ""
    error: str = ""
    trace: str = ""
    warnings: tuple[str, ...] = ()
    run: str = ""
    deadline_s: float = math.inf
