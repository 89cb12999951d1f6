"""A submitted job works in Ray's copy of the folder that was submitted: no place for a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.app.tune import tune
from cluster.ray_workers.embedded import job_config
from cluster.ray_workers.submitted import refuse_copied_folder
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec
from tuner.request.options import TuneOptions

JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
COPIED = json.dumps({"runtime_env": {"working_dir": "gcs://_ray_pkg_1.zip"}, "metadata": {}})


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, as a job has it."""
    folder = tmp_path / "_ray_pkg_1"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv(JOB, COPIED)
    return folder


@pytest.mark.parametrize("run", [Path("run1"), Path("runs/x/../run1"), None])
def test_a_relative_folder_is_refused_before_anything_begins(copy: Path, run: Path | None) -> None:
    with pytest.raises(TunerError, match=r"copy of the folder that was submitted.*whole path"):
        tune(TuneOptions(ModelSpec("no-such-model.onnx"), run=run))
    assert not [*copy.iterdir()]


def test_so_is_the_same_by_its_whole_path(copy: Path) -> None:
    with pytest.raises(TunerError, match="copy of the folder"):
        refuse_copied_folder(copy / "run1", {JOB: COPIED})


def test_a_folder_elsewhere_is_fine(copy: Path) -> None:
    refuse_copied_folder(copy.parent / "run1", {JOB: COPIED})
    refuse_copied_folder(Path("../run1"), {JOB: COPIED})


@pytest.mark.parametrize("job", ["{}", '{"runtime_env": null}', '{"runtime_env": {}}', "[]", "x"])
def test_a_job_without_a_copy_may_have_it_where_it_likes(copy: Path, job: str) -> None:
    refuse_copied_folder(Path("run1"), {JOB: job})
    refuse_copied_folder(Path("run1"), {})


@pytest.mark.ray
def test_workers_of_a_job_look_for_modules_as_ray_has_it(copy: Path) -> None:
    assert not job_config(same_python=False)._client_job
