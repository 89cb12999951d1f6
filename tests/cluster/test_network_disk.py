"""A run named by a path is refused where several machines see the path, before anything begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.app.tune import tune
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec
from tuner.request.options import TuneOptions
from tuner.run_location import RunLocation
from tuner.runs import remote
from tuner.runs.folder import RunFolder
from tuner.runs.remote import open_store

MODEL = ModelSpec("no-such-model.onnx")


@pytest.fixture(autouse=True)
def _on_nfs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "file_system", lambda path, mounted: "nfs4")


def test_a_folder_that_was_named_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TunerError, match=r"run1 is on nfs4.*--run file:///"):
        tune(TuneOptions(MODEL, run=tmp_path / "run1"))
    assert not (tmp_path / "run1").exists()


def test_so_is_the_one_that_nobody_named() -> None:
    with pytest.raises(TunerError, match=r"runs/no-such-model-\S+ is on nfs4"):
        tune(TuneOptions(MODEL))


def test_whoever_writes_to_one_that_is_there_is_refused_as_well(tmp_path: Path) -> None:
    with pytest.raises(TunerError, match="is on nfs4"):
        open_store(RunLocation.of(tmp_path), RunFolder(tmp_path))


def test_a_url_is_safe_there(tmp_path: Path) -> None:
    with pytest.raises(TunerError, match="no-such-model"):
        tune(TuneOptions(MODEL, run=(tmp_path / "run1").as_uri(), target="llvm"))
