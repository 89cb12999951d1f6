"""The job of a search actor, and the state that it reports."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cluster.search.naming import search_name
from spaces.targets.backends import Backend, backend_of
from tuner.candidate import Candidate
from tuner.files.atomic import write_bytes
from tuner.options import DEVICE_WAIT_S, TuneOptions
from tuner.run_location import RunLocation
from tuner.runs.folder import RunFolder
from tuner.search.transfer import Seeds
from tuner.session.progress import Snapshot
from tuner.task import Task

_OWNER_ONLY = 0o600
"""A tracking URI may hold a password."""


@dataclass(frozen=True, slots=True)
class WarmStart:
    """What earlier runs teach this one.

    Attributes:
        name: of the base model, version included; `none` where there is none.
        model: as bytes.
        seeds: what searches may begin with, by task key; only tasks that have any.
    """

    name: str = "none"
    model: bytes | None = None
    seeds: Mapping[str, Seeds] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Candidates among the seeds."""
        return sum(len(s.known) + len(s.parents) for s in self.seeds.values())


@dataclass(frozen=True, slots=True)
class SearchJob:
    """What a search actor is to do: a request, and what was found out for it.

    Attributes:
        options: the request, its target written out, and without a model from memory.
        location: of the run, the same from any working directory.
        run: its folder on this machine.
        tasks: all of that target.
        defaults: the default candidate of each task.
        started_s: when the run's time began, on this machine's monotonic clock.
        driver_pid: the process on this machine that wants it, and that it ends with; None where it
            outlives the driver.
        device: fingerprint of what is measured on; empty is that of the first runner.
        tracking_uri: of MLflow; empty is a database inside the run folder.
        note: on functions of the model that are left as they are.
    """

    options: TuneOptions
    location: RunLocation
    run: Path
    tasks: tuple[Task, ...]
    defaults: Mapping[str, Candidate]
    started_s: float
    warm_start: WarmStart = WarmStart()
    driver_pid: int | None = None
    device: str = ""
    tracking_uri: str = ""
    note: str = ""

    @property
    def trials(self) -> int:
        """Total of the run."""
        return self.options.trials or self.options.effort.trials_per_task * len(self.tasks)

    @property
    def deadline_s(self) -> float:
        """When the run must have ended, on this machine's monotonic clock."""
        return self.started_s + self.options.limit_s

    @property
    def device_wait_s(self) -> float:
        """How long to wait for a machine that has room for a worker."""
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
            "tasks": len(self.tasks),
            "seed": options.seed,
            "strategy": options.strategy,
            "base_model": self.warm_start.name,
            "seeds": self.warm_start.count,
            **{f"effort_{name}": value for name, value in asdict(options.effort).items()},
        }

    @property
    def backend(self) -> Backend:
        """What there is to know of the tasks' kind of target."""
        return backend_of(self.options.target)

    @property
    def name(self) -> str:
        """Of the search in Ray."""
        return search_name(self.location, self.device or self.backend.word)


def save(job: SearchJob) -> Path:
    """Put a search job where its search finds it whenever it is started again; see `load`.

    Ray keeps what an actor was made with in the process that made it, if it is large; a search
    may outlive that.
    """
    path = RunFolder(job.run).scratch / f"{job.name}.job"
    write_bytes(path, pickle.dumps(job), mode=_OWNER_ONLY)
    return path


def load(path: Path) -> SearchJob:
    """The search job that `save` put there."""
    job = pickle.loads(path.read_bytes())
    assert isinstance(job, SearchJob)
    return job


@dataclass(frozen=True, slots=True)
class SearchState:
    """What a driver sees of a search.

    Attributes:
        snapshot: None before the session has begun.
        ended: why it ended; empty while it goes on.
        error: one line, where it failed; `trace` is for `--debug`.
    """

    snapshot: Snapshot | None
    ended: str = ""
    error: str = ""
    trace: str = ""
    warnings: tuple[str, ...] = ()
