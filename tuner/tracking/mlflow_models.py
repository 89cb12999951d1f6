"""Base models in MLflow's model registry: a name for each family of targets, versions below it.

A version's file, `base_model.json`, is an artifact of a run in the experiment `tuner-models`, which
also keeps the model's accuracy on tasks it had not seen. MLflow is used in a child process only,
with a deadline: importing it takes seconds, and a server may never answer. Where no server is
named, the registry is a SQLite file of the user's own, shared by all runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tuner.cost_models.pretrained import BaseModel, base_model_from_json
from tuner.errors import TunerError
from tuner.files.locks import hold_lock
from tuner.process.ask_once import ask_once
from tuner.process.outcome import Returned
from tuner.tracking.mlflow_sink import connect, read_pages
from tuner.tracking.mlflow_uris import (
    artifacts_of,
    quiet_environment,
    redact,
    refusal,
    sqlite_file,
)
from tuner.tracking.pages.experiment_page import kind_tags

EXPERIMENT = "tuner-models"
FILE = "base_model.json"
_START_S = 60.0
_CALL_S = 120.0
_LOCK_S = 45.0
"""The time to wait for another process that writes: less than a call's, so that its error is
reported."""
_TAG = "tuner.base_model"


@dataclass(frozen=True, slots=True)
class Version:
    """One registered model.

    Attributes:
        created_s: seconds since the epoch.
        accuracy: see `BaseModel.accuracy`.
    """

    name: str
    version: int
    family: str
    features: str
    tasks: int
    records: int
    accuracy: float | None
    created_s: float


def registry_uri(uri: str | None) -> str:
    """The registry's URI: the server that is named, or a file of the user's own."""
    if uri:
        return uri
    import platformdirs

    return f"sqlite:///{Path(platformdirs.user_data_dir('elastic-tuner')).absolute() / 'models.db'}"


def register(uri: str, name: str, base: BaseModel) -> int:
    """Keep a model under a name, as its newest version; return the version's number.

    Raises:
        TunerError: the registry does not take it.
    """
    return int(_ask(uri, "register", name, base))


def fetch(uri: str, name: str) -> tuple[str, BaseModel]:
    """The newest model of a name, or the one of `NAME:VERSION`; with that full name.

    Raises:
        TunerError: there is no such model, it is damaged, or the registry does not answer.
    """
    found = _ask(uri, "fetch", name)
    if found is None:
        raise TunerError(
            f"there is no base model {name} in {redact(uri)}: 'tuner models' lists what is "
            "there, 'tuner train' makes one"
        )
    full_name, text = found
    return full_name, base_model_from_json(text, where=f"base model {full_name}")


def versions(uri: str) -> list[Version]:
    """All registered base models, by name, newest first; empty where there is no registry yet.

    Raises:
        TunerError: the registry does not answer.
    """
    if (file := sqlite_file(uri)) is not None and not file.exists():
        return []
    found: list[Version] = _ask(uri, "versions")
    return found


def _ask(uri: str, method: str, *args: object) -> Any:
    """Make one call to a registry, in a child process."""
    outcome = ask_once(
        "tuner.tracking.mlflow_models:Registry",
        (uri,),
        method,
        *args,
        ready_s=_START_S,
        deadline_s=_CALL_S,
        env=quiet_environment(),
    )
    if isinstance(outcome, Returned):
        return outcome.value
    raise TunerError(f"the model registry {redact(uri)} does not answer ({refusal(outcome)})")


class Registry:
    """A connection to the registry. Lives in a child process."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        with _one_at_a_time(uri):
            self._client = connect(uri)
            self._client.search_registered_models(max_results=1)  # makes the tables of a new file

    def register(self, name: str, base: BaseModel) -> int:
        """Keep a model; return its version."""
        client = self._client
        with _one_at_a_time(self._uri):
            experiment = self._experiment()
            run = client.create_run(experiment, run_name=name, tags={_TAG: name})
            run_id = run.info.run_id
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / FILE
                path.write_text(base.to_json(), encoding="utf-8")
                client.log_artifact(run_id, str(path))
            for key, value in {"tasks": base.tasks, "records": base.records}.items():
                client.log_param(run_id, key, value)
            if base.accuracy is not None:
                client.log_metric(run_id, "accuracy_on_other_tasks", base.accuracy)
            client.set_terminated(run_id)
            self._have(name)
            made = client.create_model_version(
                name, source=run.info.artifact_uri, run_id=run_id, tags=_tags(base)
            )
        return int(made.version)

    def fetch(self, name: str) -> tuple[str, str] | None:
        """A model's full name and the text of its file; None where there is no such model."""
        bare, _, number = name.partition(":")
        found = [v for v in self._of(bare) if not number or str(v.version) == number]
        if not found:
            return None
        newest = max(found, key=lambda v: int(v.version))
        with tempfile.TemporaryDirectory() as folder:
            path = self._client.download_artifacts(newest.run_id, FILE, folder)
            return f"{bare}:{newest.version}", Path(path).read_text(encoding="utf-8")

    def versions(self) -> list[Version]:
        """All base models; other models of the registry are left alone."""
        names = [model.name for model in read_pages(self._client.search_registered_models)]
        found = [_version(v) for name in names for v in self._of(name)]
        return sorted(found, key=lambda v: (v.name, -v.version))

    def _of(self, name: str) -> list[Any]:
        # MLflow's filters have no escapes, but two kinds of quotes.
        quoted = f'"{name}"' if "'" in name else f"'{name}'"
        search = partial(self._client.search_model_versions, f"name={quoted}")
        return [version for version in read_pages(search) if _TAG in version.tags]

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name(EXPERIMENT)
        if found is not None:
            return str(found.experiment_id)
        place, tags = artifacts_of(self._uri), kind_tags()
        return str(self._client.create_experiment(EXPERIMENT, artifact_location=place, tags=tags))

    def _have(self, name: str) -> None:
        try:
            self._client.create_registered_model(name)
        except Exception as error:  # MLflow's own class, told by its code
            if getattr(error, "error_code", "") != "RESOURCE_ALREADY_EXISTS":
                raise


def _tags(base: BaseModel) -> dict[str, str]:
    return {
        _TAG: base.family,
        "tuner.features": base.features,
        "tuner.tasks": str(base.tasks),
        "tuner.records": str(base.records),
        "tuner.accuracy": "" if base.accuracy is None else f"{base.accuracy:.4f}",
        "tuner.created_s": repr(base.created_s),
    }


def _version(raw: Any) -> Version:
    tags = raw.tags
    return Version(
        raw.name,
        int(raw.version),
        tags[_TAG],
        tags["tuner.features"],
        int(tags["tuner.tasks"]),
        int(tags["tuner.records"]),
        float(tags["tuner.accuracy"]) if tags["tuner.accuracy"] else None,
        float(tags["tuner.created_s"]),
    )


@contextmanager
def _one_at_a_time(uri: str) -> Iterator[None]:
    """Lock a SQLite registry: two processes that make its tables at once break each other.

    Raises:
        TunerError: others held the lock for `_LOCK_S`.
    """
    if (file := sqlite_file(uri)) is None:
        yield
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(file.parent, wait_s=_LOCK_S):
        yield
