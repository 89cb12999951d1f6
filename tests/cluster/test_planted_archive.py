"""Whoever can write to a run may put anything there: reading it runs none of it.

PyTorch's loader unpickles what an archive holds. It is an optional extra, so here something that
does the same stands in for it; `tests/spaces/frontends/test_torch_model.py` plants an archive for
PyTorch.
"""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.app.cli import run
from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Record, Status, Trial
from tuner.request.model_spec import ModelSpec
from tuner.run_location import RunLocation
from tuner.runs.folder import Manifest, open_run
from tuner.runs.remote import begin, open_store, put_model, remote_run
from tuner.storage.base import RecordStore, begin_session
from tuner.storage.facts import Defaults, SessionEnded, Tasks

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'
DENSE = ModelSpec(f"{Path(__file__).parents[2] / 'examples'}/dense.py:dense")
WANTED = Manifest("net.pt2", "hash", LLVM)
OLD = {"format": 1, "kind": "torch", "name": "net", "content_hash": "hash", "inputs": []}


@dataclass(frozen=True)
class Payload:
    """Makes a folder when it is unpickled."""

    ran: Path

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return Path.mkdir, (self.ran,)


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is there once something was unpickled; PyTorch's loader would."""

    def load(path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                pickle.loads(archive.read(name))

    monkeypatch.setattr("spaces.frontends.pytorch.model.read_archive", load)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "ran"


def plant(model_dir: Path, ran: Path, description: dict[str, Any]) -> None:
    model_dir.mkdir(parents=True)
    (model_dir / "model.json").write_text(json.dumps({**description, "values": []}))
    for name in ("model.pt2", "module.params"):
        with zipfile.ZipFile(model_dir / name, "w") as archive:
            archive.writestr("net/models/model.json", pickle.dumps(Payload(ran)))
    (model_dir / "module.json").write_bytes(pickle.dumps(Payload(ran)))
    (model_dir / "model.onnx").write_bytes(pickle.dumps(Payload(ran)))


def fill(store: RecordStore) -> None:
    """A task with a result."""
    from spaces.design_space.default_schedule import default_candidate

    (task,) = tasks()
    default = default_candidate(task)
    other = Candidate(CandidateKind.TRACE, "[1]", "test")
    store.put(Tasks([task]), Defaults({task.key: default.key}))
    session = begin_session(store, 100.0)
    store.append_many(
        [(Record(Trial(task.key, default), Measurement(Status.OK, (0.004, 0.004))), None)]
    )
    store.append_many(
        [(Record(Trial(task.key, other), Measurement(Status.WRONG, error="differs")), None)]
    )
    store.put(SessionEnded(session, 104.0, "trials"))


def tasks() -> list[Any]:
    from spaces.frontends.model import load_model
    from spaces.lowering.extract_tasks import extract
    from spaces.lowering.lower import lower

    return extract(lower(load_model(DENSE).module, LLVM), LLVM)


def a_run(tmp_path: Path, ran: Path, description: dict[str, Any]) -> str:
    folder, _ = open_run(tmp_path / "run", WANTED)
    plant(folder.model_dir, ran, description)
    with closing(open_store(RunLocation.of(folder.root), folder)) as store:
        fill(store)
    return str(tmp_path / "run")


def a_shared_run(tmp_path: Path, ran: Path, description: dict[str, Any]) -> str:
    url = (tmp_path / "shared" / "run").as_uri()
    there = remote_run(RunLocation.of(url), tmp_path / "there")
    begin(there, WANTED)
    plant(there.run.model_dir, ran, description)
    put_model(there)
    with closing(open_store(RunLocation.of(url), there.run)) as store:
        fill(store)
    return url


PLACES = [pytest.param(a_run, id="folder"), pytest.param(a_shared_run, id="url")]
Make = Callable[[Path, Path, dict[str, Any]], str]


def test_the_stand_in_runs_what_is_planted(tmp_path: Path, ran: Path) -> None:
    from spaces.frontends.model import load_model

    plant(tmp_path / "model", ran, OLD)
    with pytest.raises((AttributeError, ImportError)):  # it gives no program
        load_model(ModelSpec(str(tmp_path / "model" / "model.pt2")))
    assert ran.exists()


@pytest.mark.usefixtures("bench_without_pauses")
@pytest.mark.parametrize("make", PLACES)
@pytest.mark.parametrize(
    "description",
    [OLD, {**OLD, "format": 2}, {**OLD, "format": 2, "kind": "function"}, {**OLD, "kind": "onnx"}],
    ids=lambda about: f"{about['kind']}-{about['format']}",
)
def test_no_command_runs_what_is_in_a_copy(
    make: Make,
    description: dict[str, Any],
    tmp_path: Path,
    ran: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    where = make(tmp_path, ran, description)
    for command, code in (
        (["status", where], 0),
        (["best", where, "--json"], 0),
        (["export", where, "--records", str(tmp_path / "records")], 0),
        (["export", where, "--lib", str(tmp_path / "net.so")], 1),
        (["export", where, "--database", str(tmp_path / "database")], 1),
        (["bench", where], 1),
    ):
        assert run(command) == code
        assert not ran.exists(), command
    said = capfd.readouterr().err
    assert "Traceback" not in said
    if description is OLD:
        assert "was written by another version of the tuner" in said
