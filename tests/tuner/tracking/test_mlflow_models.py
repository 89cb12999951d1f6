"""Base models in a real MLflow registry on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.cost_models.pretrained import BaseModel
from tuner.errors import TunerError
from tuner.files.locks import hold_lock
from tuner.process.child import Child
from tuner.process.outcome import Outcome, Returned
from tuner.tracking import mlflow_models
from tuner.tracking.mlflow_models import fetch, register, registry_uri, versions
from tuner.tracking.mlflow_uris import quiet_environment

pytestmark = pytest.mark.slow

BASE = BaseModel(bytes(range(256)) * 40, "llvm-znver4", "1-552", 3, 400, 0.75, 12.5)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/models/models.db"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One for several tests, with a first model, for which it was made: that takes MLflow long."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('registry')}/models.db"
    assert register(uri, "mine", BASE) == 1
    return uri


@pytest.fixture(scope="module")
def child(registry: str) -> Iterator[Child]:
    with Child(
        "tuner.tracking.mlflow_models:Registry", (registry,), env=quiet_environment()
    ) as started:
        yield started


@pytest.fixture
def one_child(child: Child, registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All calls to the registry in one process: each would import MLflow for a call of its own."""

    def ask(
        factory: str,
        args: tuple[str],
        method: str,
        *arguments: object,
        ready_s: float,
        deadline_s: float,
        env: dict[str, str],
    ) -> Outcome:
        assert args == (registry,)
        outcome = child.ready(ready_s)
        assert isinstance(outcome, Returned), outcome
        return child.call(method, *arguments, deadline_s=deadline_s)

    monkeypatch.setattr(mlflow_models, "ask_once", ask)


@pytest.mark.usefixtures("one_child")
def test_a_model_comes_back_by_its_name_and_the_newest_first(registry: str) -> None:
    uri = registry
    newer = replace(BASE, records=500, accuracy=None)
    assert register(uri, "mine", newer) == 2
    assert register(uri, "other's", BASE) == 1
    assert fetch(uri, "mine") == ("mine:2", newer)
    assert fetch(uri, "mine:1") == ("mine:1", BASE)
    assert fetch(uri, "other's") == ("other's:1", BASE)
    listed = [(v.name, v.version, v.records, v.accuracy) for v in versions(uri)]
    assert listed == [("mine", 2, 500, None), ("mine", 1, 400, 0.75), ("other's", 1, 400, 0.75)]
    for name in ("nobody", "mine:3", "mine:x"):
        with pytest.raises(TunerError, match=f"there is no base model {name} in sqlite"):
            fetch(uri, name)


def test_registries_of_earlier_versions_are_read() -> None:
    """What says that a model is ours, and of which family, never changes."""
    assert mlflow_models._tags(BASE)["tuner.base_model"] == "llvm-znver4"


@pytest.mark.usefixtures("one_child")
def test_models_of_others_in_the_same_registry_are_left_alone(registry: str) -> None:
    register(registry, "theirs", BASE)
    with closing(sqlite3.connect(registry.removeprefix("sqlite:///"))) as database, database:
        database.execute(
            "delete from model_version_tags where name = 'theirs' and key = 'tuner.base_model'"
        )
    assert "theirs" not in {version.name for version in versions(registry)}
    with pytest.raises(TunerError, match="there is no base model theirs"):
        fetch(registry, "theirs")


def test_listing_makes_no_registry(uri: str) -> None:
    assert versions(uri) == []
    assert not Path(uri.removeprefix("sqlite:///")).parent.exists()


def test_a_registry_that_does_not_answer_is_one_line_without_the_password() -> None:
    with pytest.raises(TunerError, match="does not answer") as caught:
        fetch("http://user:secret@127.0.0.1:9", "mine")
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_who_waits_too_long_for_another_writer_is_told(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow_models, "_LOCK_S", 0.1)
    folder = Path(uri.removeprefix("sqlite:///")).parent
    folder.mkdir()
    with (
        hold_lock(folder),
        pytest.raises(TunerError, match=r"is locked by another process: end it"),
    ):
        mlflow_models.Registry(uri)


def test_the_users_own_registry_is_where_the_system_keeps_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert registry_uri(None) == f"sqlite:///{tmp_path}/elastic-tuner/models.db"
    assert registry_uri("http://x") == "http://x"
