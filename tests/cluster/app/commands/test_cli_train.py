"""`tuner train`, `tuner models`, and what `tuner tune` makes of base models: without tuning."""

from __future__ import annotations

import json
import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cluster.app.cli import run
from cluster.app.driver.warm_start import base_for, seeds_for
from spaces.design_space.task_space import TaskSpace
from tests.contracts.programs import gemm_task
from tuner.candidate import Candidate, CandidateKind, Draft, form_of
from tuner.cost_models.pretrained import BaseModel, family, read_base_model
from tuner.cost_models.prior import load_priors
from tuner.cost_models.process import ESTIMATE_COLUMN
from tuner.errors import TunerError
from tuner.record import Measurement, Provenance, Record, Status, Trial
from tuner.runs.folder import Manifest, RunFolder, open_run
from tuner.storage.facts import Tasks
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task

pytestmark = pytest.mark.tvm

TARGET = '{"kind":"llvm","mcpu":"znver4","num-cores":2}'
OTHER = '{"kind":"llvm","mcpu":"apple-m1","num-cores":2}'


def a_run(folder: Path, *, target: str = TARGET, records: int = 12, columns: int = 0) -> Path:
    """A run of two tasks, as if it had been tuned."""
    from spaces.features.vectors import FEATURE_LENGTH

    open_run(folder, Manifest("m", "hash", target))
    store = SqliteStore(RunFolder(folder).store)
    tasks = [Task(key, key, "{}", target) for key in ("a", "b")]
    store.put(Tasks(tasks))
    rng = np.random.default_rng(0)
    for task in tasks:
        for number in range(records):
            vector = rng.normal(size=columns or FEATURE_LENGTH).astype(np.float32)
            candidate = Candidate(CandidateKind.TRACE, f"[{number}]", "test")
            done = Measurement(Status.OK, (float(np.exp(vector[0])),))
            where = Provenance("runner", "cpu x")
            store.append_many([(Record(Trial(task.key, candidate), done, where), vector)])
    store.close()
    return folder


def a_run_of_templates(folder: Path) -> Path:
    """A run of a matrix product whose search tried settings of its templates."""
    task = gemm_task()
    open_run(folder, Manifest("m", "hash", task.target))
    with closing(SqliteStore(RunFolder(folder).store)) as store:
        store.put(Tasks([task]))
        for space in TaskSpace(task).templates:
            for knobs in space.ranked[:20]:
                point = space.describe(knobs)
                done = Measurement(Status.OK, (3.0 * (point.estimate_s or 1.0),))
                trial = Trial(task.key, point.candidate)
                store.append_many([(Record(trial, done, Provenance("runner", "cpu x")), None)])
    return folder


@pytest.fixture(autouse=True)
def own_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def test_a_file_is_written_and_nothing_registered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "base.json"
    assert run(["train", str(a_run(tmp_path / "run")), "--out", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["model"] == str(out)
    assert (report["family"], report["tasks"], report["records"]) == ("llvm-znver4", 2, 24)
    base = read_base_model(out)
    assert (base.records, base.accuracy) == (24, report["accuracy"])
    assert base_for(str(out), TARGET, None).model == base.model
    assert not (tmp_path / "data").exists()


def test_a_run_of_templates_teaches_the_prior_of_their_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, folder = tmp_path / "base.json", a_run_of_templates(tmp_path / "run")
    assert run(["train", str(folder), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] >= 20
    start = base_for(str(out), gemm_task().target, None)
    assert start.model is None
    task = gemm_task()
    (settings, *_) = TaskSpace(task).settings(Draft(task.key, 1, 1, listing=True))
    off = load_priors(start.priors)[form_of(settings.space)].means(settings.features[:20])
    estimates = settings.features[:20, ESTIMATE_COLUMN] * math.log(2.0)
    assert (off - estimates).tolist() == pytest.approx([math.log(3.0)] * 20, abs=0.01)


@pytest.mark.long
def test_what_is_registered_is_listed_and_found_by_its_family(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(a_run(tmp_path / "run"))
    assert run(["train", folder]) == 0
    assert "tuner-cost-model-llvm-znver4:1: 24 records of 2 tasks" in capsys.readouterr().out
    assert run(["models", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["models"]
    assert (listed["name"], listed["version"]) == ("tuner-cost-model-llvm-znver4", 1)
    found = base_for("auto", TARGET, None)
    assert found.name == "tuner-cost-model-llvm-znver4:1"
    assert found.model
    with pytest.raises(TunerError, match="no base model tuner-cost-model-llvm-apple-m1"):
        base_for("auto", OTHER, None)


def test_an_empty_registry_says_how_to_fill_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models"]) == 0
    assert "tuner train" in capsys.readouterr().out
    assert run(["models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"models": []}


def test_runs_of_two_families_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [a_run(tmp_path / "one"), a_run(tmp_path / "two", target=OTHER)]
    assert run(["train", *map(str, runs), "--out", str(tmp_path / "x.json")]) == 1
    said = capsys.readouterr().err
    assert "different families" in said
    assert len(said.splitlines()) == 1


def test_a_run_with_features_of_another_version_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = a_run(tmp_path / "old", columns=9)
    assert run(["train", str(folder), "--out", str(tmp_path / "x.json")]) == 1
    assert "features" in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "DIR"),
        (["nowhere"], 1, "there is no run folder"),
        (["nowhere", "--name", "a", "--out", "b"], 2, "not both"),
        (["nowhere", "--name", "a/b"], 2, "no '/'"),
    ],
)
def test_bad_requests_are_refused(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", *arguments]) == code
    assert said in capsys.readouterr().err


def test_a_model_of_other_features_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    base = BaseModel(b"x", "llvm-znver4", "0-1", 1, 1, None, 0.0)
    path.write_text(base.to_json())
    with pytest.raises(TunerError, match="reads features of version 0-1") as caught:
        base_for(str(path), TARGET, None)
    assert "\n" not in str(caught.value)
    path.write_text(replace(base, family="cuda-sm_90").to_json())
    with pytest.raises(TunerError):
        base_for(str(path), TARGET, None)
    assert base_for("none", TARGET, None).model is None


def test_seeds_come_from_other_runs(tmp_path: Path) -> None:
    other = a_run(tmp_path / "other")
    mine = RunFolder(tmp_path / "mine")
    seeds = seeds_for([Task("a", "a", "{}", TARGET), Task("c", "c", "{}", TARGET)], mine, [other])
    assert set(seeds) == {"a"}
    assert len(seeds["a"].known) == 4
    with pytest.raises(TunerError, match="no run folder"):
        seeds_for([], mine, [tmp_path / "nowhere"])
    open_run(tmp_path / "empty", Manifest("m", "hash", TARGET))
    with pytest.raises(TunerError, match="holds no records yet"):
        seeds_for([], mine, [tmp_path / "empty"])


# ---- the emulated device, whose times are a model's

REAL = '{"arch":"sm_80","kind":"cuda"}'
EMULATED = '{"arch":"sm_80","keys":["cuda","gpu","emulated"],"kind":"cuda"}'


def test_nothing_is_learned_from_the_emulated_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [a_run(tmp_path / "real", target=REAL), a_run(tmp_path / "other", target=EMULATED)]
    assert run(["train", *map(str, runs), "--out", str(tmp_path / "x.json")]) == 1
    assert f"{runs[1]} has times of the emulated device" in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()


def test_no_model_of_a_device_is_for_the_emulated_one() -> None:
    assert family(REAL) == "cuda-sm_80"
    assert family(EMULATED) == "emulated-sm_80"
    with pytest.raises(TunerError, match="no base model tuner-cost-model-emulated-sm_80"):
        base_for("auto", EMULATED, None)


def test_the_emulated_device_seeds_no_run_on_a_real_one(tmp_path: Path) -> None:
    other = a_run(tmp_path / "emulated", target=EMULATED)
    own = RunFolder(tmp_path / "own")
    with pytest.raises(TunerError, match="has times of the emulated device"):
        seeds_for([Task("a", "a", "{}", REAL)], own, [other])
    assert seeds_for([Task("a", "a", "{}", EMULATED)], own, [other])


def test_an_equal_program_is_another_task_on_the_emulated_device() -> None:
    from spaces.targets.target import emulate_target, resolve_target, takes_the_same
    from spaces.testing.programs import task

    real = resolve_target(REAL)
    assert task(real).key != task(emulate_target(REAL)).key
    assert not takes_the_same(real, emulate_target(REAL))
