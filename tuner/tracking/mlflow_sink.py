"""Pushes entries to MLflow. The only file of this package that imports mlflow, when used.

Layout in MLflow: a run for the session's run, tagged `tuner.run` with its uuid, and a child run
for each task that gets one, tagged `tuner.task` with its key. The ids MLflow gave are kept in
`ids.json`; where that file lacks one (a crash between creating and writing) the tags are searched
first.

Everything here can be repeated: steps and timestamps come with the entries, and the store keeps
an equal metric once.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from tuner.files.atomic import name_first
from tuner.tracking.entries import (
    TABLES,
    End,
    Entry,
    Metrics,
    Start,
    Tags,
    TaskEntry,
    TrackingPaths,
    read_json,
    write_json,
)
from tuner.tracking.mlflow_uris import SQLITE, artifacts_of, redact, sqlite_file, tracking_uri
from tuner.tracking.pages.experiment_page import (
    LEVEL_TAG,
    OF_MODEL,
    OF_TASK,
    decoration,
    experiment_tags,
)
from tuner.tracking.sink import Gone, Refused, SinkError, Unavailable

RUN_TAG = "tuner.run"
TASK_TAG = "tuner.task"
_PARENT_TAG = "mlflow.parentRunId"
_TABLES_TAG = "mlflow.loggedArtifacts"
"""Says which artifacts MLflow's pages show as tables."""
_BATCH = 1000  # metrics in one request, MLflow's own limit


@dataclass(frozen=True, slots=True)
class Target:
    """The MLflow server and experiment that a run is tracked with.

    Attributes:
        uri: MLflow's tracking URI; empty is a SQLite file inside the run folder.
        experiment: name of the experiment.
    """

    uri: str = ""
    experiment: str = "tuner"

    @property
    def identity(self) -> str:
        """A hash that tells servers apart and hides the URI (and the folder's path)."""
        return hashlib.sha256(f"{self.uri}\n{self.experiment}".encode()).hexdigest()[:16]

    def save(self, paths: TrackingPaths) -> None:
        """Keep the target for the tracker, for its owner's eyes only: a URI may hold a password."""
        write_json(paths.target, {"uri": self.uri, "experiment": self.experiment}, mode=0o600)


def load_target(paths: TrackingPaths) -> Target:
    """The target that a run was started with; the default where none was kept."""
    raw = read_json(paths.target)
    return Target(str(raw.get("uri", "")), str(raw.get("experiment", "tuner")))


def connect(uri: str) -> Any:
    """A client of MLflow's tracking and model registry at a URI. Expects `quiet_environment`."""
    if (file := sqlite_file(uri)) is not None and not file.exists():
        _make_database(file)
    return _client(uri)


def read_pages(search: Callable[..., Any]) -> Iterator[Any]:
    """All that a search of MLflow's finds, which it gives page by page."""
    token = None
    while True:
        page = search(page_token=token)
        yield from page
        if not (token := page.token):
            return


def _client(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def _make_database(file: Path) -> None:
    """Make a database that is whole, or not there.

    MLflow writes its tables in tens of steps. A file whose making was cut off between two of them
    cannot be opened any more, and a tracker may be killed at any moment.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    begun = f"{file.name}.part-"
    for other in file.parent.glob(f"{begun}*"):
        if not psutil.pid_exists(int(other.name.removeprefix(begun).partition("-")[0])):
            other.unlink(missing_ok=True)
    part = file.with_name(f"{begun}{os.getpid()}")
    try:
        _client(f"{SQLITE}{part}").search_experiments(max_results=1)
        with suppress(FileExistsError):  # another process was faster
            name_first(part, file)
    finally:
        for left in file.parent.glob(f"{part.name}*"):
            left.unlink(missing_ok=True)


def system_monitors() -> tuple[list[Any], float]:
    """MLflow's own monitors of CPU, memory, disk, network and, with `nvidia-ml-py`, GPUs; and the
    seconds between two looks.

    MLflow's variables for them are heeded: none where MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING is
    false, unlike MLflow, which wants it to be true.
    """
    from mlflow.environment_variables import (
        MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING,
        MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL,
    )
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
    from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
    from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

    interval_s = float(MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL.get() or 10.0)
    wanted = MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING
    if wanted.is_set() and not wanted.get():
        return [], interval_s
    monitors: list[Any] = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]
    with suppress(ImportError, RuntimeError):  # no library, no GPU
        monitors.append(GPUMonitor())
    return monitors, interval_s


class MlflowSink:
    """One run and its tasks in MLflow. For one process at a time."""

    def __init__(self, run_dir: Path, target: Target) -> None:
        """Connect when first used. Expects `quiet_environment` to be set."""
        self._paths = TrackingPaths(run_dir)
        self._uri = tracking_uri(run_dir, target.uri)
        self._target = target
        self._client: Any = None
        self._searched = False
        self._uuid = ""
        self._experiment = ""
        self._began_s = time.time()
        self._runs: dict[str, str] = {}  # by task key, the run itself under ""
        kept = read_json(self._paths.ids)
        if kept.get("target") == target.identity:
            self._uuid = str(kept["uuid"])
            self._experiment = str(kept["experiment"])
            self._runs = {str(k): str(v) for k, v in kept["runs"].items()}

    def knows(self, task: str) -> bool:
        """See `Sink.knows`."""
        return task in self._runs

    def set_timeout(self, timeout_s: int) -> None:
        """Set the time that one request may take; MLflow reads it at each request."""
        os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = str(timeout_s)

    def push(self, entries: Sequence[Entry]) -> None:
        """Apply entries in order. Raises SinkError; repeating is harmless."""
        with self._translate_errors():
            metrics: list[Metrics] = []
            for entry in entries:
                match entry:
                    case Start():
                        self._start(entry)
                    case TaskEntry():
                        self._task(entry)
                    case Metrics():
                        metrics.append(entry)
                    case Tags():
                        self._params(self._known(""), {}, entry.tags)
                    case End():
                        self._metrics(metrics)
                        metrics = []
                        self._end(entry)
            self._metrics(metrics)

    def upload(self, name: str, path: Path) -> None:
        """Send a file. Raises Unavailable, since a store of artifacts can fail in many ways."""
        folder = str(Path(name).parent)
        with self._translate_errors(refusals=False):
            self._connect().log_artifact(
                self._known(""), str(path), None if folder == "." else folder
            )
            if name in TABLES:
                self._show_table(name)

    def _show_table(self, path: str) -> None:
        """Tell MLflow's pages to show an artifact as a table."""
        client, run_id = self._connect(), self._runs[""]
        with decoration("a table"):
            shown = json.loads(client.get_run(run_id).data.tags.get(_TABLES_TAG, "[]"))
            table = {"path": path, "type": "table"}
            if table not in shown:
                client.set_tag(run_id, _TABLES_TAG, json.dumps([*shown, table]))

    def abandon(self, time_s: float) -> None:
        """End the run as KILLED if it still runs: its session vanished."""
        if "" not in self._runs:
            return
        with self._translate_errors():
            if self._connect().get_run(self._runs[""]).info.status == "RUNNING":
                self._end(End("KILLED", time_s))

    def forget(self) -> None:
        """Drop the ids: the next push finds the runs by their tags or makes new ones."""
        self._uuid = self._experiment = ""
        self._runs = {}
        self._searched = False
        self._paths.ids.unlink(missing_ok=True)

    def _connect(self) -> Any:
        if self._client is None:
            # An unknown URI is not the entries' fault: none of them may be dropped.
            with self._translate_errors(refusals=False):
                self._client = connect(self._uri)
        return self._client

    @contextmanager
    def _translate_errors(self, *, refusals: bool = True) -> Iterator[None]:
        """Turn exceptions of MLflow and its stores into a SinkError."""
        try:
            yield
        except (SinkError, ImportError):
            raise
        except Exception as error:  # border: stores raise whatever they like
            text = redact(" ".join(str(error).split()))[:500] or repr(error)
            code = getattr(error, "error_code", "")
            if code == "RESOURCE_DOES_NOT_EXIST" and refusals:
                raise Gone(text) from error
            if code == "INVALID_PARAMETER_VALUE" and refusals:
                raise (Gone if "'active' state" in text else Refused)(text) from error
            raise Unavailable(text) from error

    def _start(self, entry: Start) -> None:
        if self._uuid != entry.uuid:
            self._uuid, self._runs, self._searched = entry.uuid, {}, False
        if not self._experiment:
            self._experiment = self._find_experiment()
        self._began_s = entry.time_s
        tags = {**entry.tags, LEVEL_TAG: OF_MODEL}
        self._ensure("", entry.name, {**tags, RUN_TAG: entry.uuid})
        self._connect().update_run(self._runs[""], status="RUNNING")
        self._params(self._runs[""], entry.params, tags)

    def _task(self, entry: TaskEntry) -> None:
        parent = self._known("")
        tags = {RUN_TAG: self._uuid, TASK_TAG: entry.task, LEVEL_TAG: OF_TASK, _PARENT_TAG: parent}
        self._ensure(entry.task, entry.name, tags)
        self._connect().update_run(self._runs[entry.task], status="RUNNING")
        self._params(self._runs[entry.task], entry.params, {})

    def _metrics(self, entries: Sequence[Metrics]) -> None:
        from mlflow.entities import Metric

        by_run: dict[str, list[Any]] = {}
        for entry in entries:
            time_ms = int(entry.time_s * 1000)
            run_id = self._known(entry.task or "")
            by_run.setdefault(run_id, []).extend(
                Metric(key, value, time_ms, entry.step) for key, value in entry.values.items()
            )
        for run_id, metrics in by_run.items():
            for i in range(0, len(metrics), _BATCH):
                self._connect().log_batch(run_id, metrics=metrics[i : i + _BATCH], synchronous=True)

    def _end(self, entry: End) -> None:
        time_ms = int(entry.time_s * 1000)
        # The run itself last: once it shows as over, its tasks do too.
        for key in sorted(self._runs, reverse=True):
            self._connect().set_terminated(self._runs[key], entry.status, time_ms)

    def _params(self, run_id: str, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Set params and tags. MLflow never changes a param: a value that a resumed session has
        changed becomes a tag, `resumed.<name>`."""
        from mlflow.entities import Param, RunTag

        old = self._connect().get_run(run_id).data.params
        fresh = [Param(k, v) for k, v in params.items() if k not in old]
        changed = {f"resumed.{k}": v for k, v in params.items() if k in old and old[k] != v}
        self._connect().log_batch(
            run_id,
            params=fresh,
            tags=[RunTag(k, v) for k, v in {**tags, **changed}.items()],
            synchronous=True,
        )

    def _find_experiment(self) -> str:
        client, name = self._connect(), self._target.experiment
        tags = experiment_tags(time.time())
        found = client.get_experiment_by_name(name)
        if found is None:
            # Two runs may create it at the same moment: the second one tries again.
            place = artifacts_of(self._uri)
            return str(client.create_experiment(name, artifact_location=place, tags=tags))
        if found.lifecycle_stage != "active":
            raise Unavailable(f"the experiment {name!r} is deleted: restore it, or name another")
        with decoration("the experiment"):
            for key, value in tags.items():
                if key not in found.tags:  # somebody else made it
                    client.set_experiment_tag(found.experiment_id, key, value)
        return str(found.experiment_id)

    def _known(self, key: str) -> str:
        if key not in self._runs:
            raise Refused(f"task {key!r} was never announced" if key else "no run was announced")
        return self._runs[key]

    def _ensure(self, key: str, name: str, tags: Mapping[str, str]) -> None:
        """Find or make the run for this key, and keep its id on disk."""
        if key in self._runs:
            return
        if not self._searched:
            self._search()
        if key not in self._runs:
            # If the answer gets lost the run may exist: search again before the next try.
            self._searched = False
            run = self._connect().create_run(
                self._experiment,
                start_time=int(self._began_s * 1000),  # of tasks too, so that runs sort together
                run_name=name,
                tags=dict(tags),
            )
            self._runs[key] = run.info.run_id
            self._searched = True
        write_json(
            self._paths.ids,
            {
                "target": self._target.identity,
                "uuid": self._uuid,
                "experiment": self._experiment,
                "runs": self._runs,
            },
        )

    def _search(self) -> None:
        """Learn the ids of all runs that carry this run's uuid; the earliest of a key counts."""
        mine, order = f"tags.`{RUN_TAG}` = '{self._uuid}'", ["attributes.start_time DESC"]
        search = partial(self._connect().search_runs, [self._experiment], mine, order_by=order)
        for run in read_pages(search):
            self._runs[run.data.tags.get(TASK_TAG, "")] = run.info.run_id
        self._searched = True
