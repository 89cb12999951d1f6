"""The job of a search actor, and the state that it reports."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cluster.search.naming import search_name
from spaces.targets.backends import Backend, backend
from tuner.candidate import Candidate
from tuner.effort import Effort
from tuner.files.atomic import write_bytes
from tuner.options import DEVICE_WAIT_S, MAX_KERNELS
from tuner.runs.folder import RunFolder
from tuner.search.transfer import Seeds
from tuner.session.progress import Snapshot
from tuner.task import Task

_OWNER_ONLY = 0o600
"""A tracking URI may hold a password."""


@dataclass(frozen=True, slots=True)
class SearchJob:
    """What a search actor is to do.

    Attributes:
        run: the run folder.
        driver_pid: the process on this machine that wants it, and that it ends with; None where it
            outlives the driver.
        tasks: all of one target.
        defaults: the default candidate of each task.
        trials: total of the run.
        deadline_s: on this machine's monotonic clock.
        target_kind: of the tasks.
        device: fingerprint of what is measured on; empty is that of the first runner.
        devices: how many runners at most; None is one for each device that can be had.
        device_wait_s: how long to wait for a machine that has a device.
        facts: parameters of the run as the tracker shows them.
        tracking_uri: of MLflow; empty is a database inside the run folder.
        base_model: what the cost model begins with; None is nothing.
        seeds: what searches may begin with, by task key.
        max_kernels: that may serve all shapes of a task with symbolic dimensions.
        url: of the run, where it lives away from this machine; `run` is then its working folder.
    """

    run: Path
    driver_pid: int | None
    tasks: tuple[Task, ...]
    defaults: Mapping[str, Candidate]
    effort: Effort
    trials: int
    deadline_s: float
    finalists_s: float
    seed: int
    strategy: str
    target_kind: str
    facts: Mapping[str, object]
    device: str = ""
    devices: int | None = None
    device_wait_s: float = DEVICE_WAIT_S
    tracking_uri: str = ""
    base_model: bytes | None = None
    seeds: Mapping[str, Seeds] = field(default_factory=dict)
    max_kernels: int = MAX_KERNELS
    url: str = ""

    @property
    def called(self) -> Path | str:
        """What every machine knows the run by."""
        return self.url or self.run

    @property
    def backend(self) -> Backend:
        """What there is to know of the tasks' kind of target."""
        return backend(self.target_kind)

    @property
    def name(self) -> str:
        """Of the search in Ray."""
        return search_name(self.called, self.device or self.backend.word)


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
