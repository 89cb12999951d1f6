"""The copy of the model in a run folder: whole or not there, whatever happens to the machine."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from cluster.app.driver.prepare import _keep_model
from spaces.frontends.model import Model
from tests.contracts.power_cut import Disk
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec
from tuner.request.options import TuneOptions
from tuner.runs.folder import RunFolder
from tuner.runs.model_files import check_copy

_WEIGHTS = onnx.helper.make_tensor("w", onnx.TensorProto.UINT8, [7000], b"weights" * 1000, raw=True)
NETWORK = onnx.helper.make_model(
    onnx.helper.make_graph([], "net", [], [], [_WEIGHTS])
).SerializeToString()


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    (tmp_path / "run").mkdir()
    return RunFolder(tmp_path / "run")


def keep(run: RunFolder) -> None:
    """What a session does when it begins."""
    original = run.root.parent / "net.onnx"
    original.write_bytes(NETWORK)
    model = Model("net", "onnx", None, (), "0123456789abcdef", original)
    _keep_model(model, TuneOptions(ModelSpec(str(original))), run)


def test_a_power_cut_leaves_the_whole_model_or_none(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(run.root, monkeypatch)
    keep(run)
    whole = {file.name: file.read_bytes() for file in run.model_dir.iterdir()}
    assert whole["model.onnx"] == NETWORK
    named = {f"model/{name}": data for name, data in whole.items()}
    for moment in disk.moments:
        assert {n: d for n, d in moment.items() if n.startswith("model/")} in ({}, named)
    assert disk.left() == named


@pytest.mark.parametrize(
    ("torn", "old"),
    [(b"", False), (NETWORK[:-1], False), (b"x" * len(NETWORK), False), (b"", True)],
)
def test_a_torn_one_is_refused_and_made_anew_by_who_has_the_model(
    run: RunFolder, torn: bytes, old: bool, caplog: pytest.LogCaptureFixture
) -> None:
    keep(run)
    (run.model_dir / "model.onnx").write_bytes(torn)
    if old:  # copies of earlier versions have no checksums
        about = json.loads((run.model_dir / "model.json").read_text())
        del about["files"]
        (run.model_dir / "model.json").write_text(json.dumps(about))
    with pytest.raises(TunerError, match=r"damaged \(model\.onnx is .*run `tuner tune`") as caught:
        check_copy(run.model_dir)
    assert "\n" not in str(caught.value)
    keep(run)
    assert "it is copied anew" in caplog.text
    check_copy(run.model_dir, "0123456789abcdef")
    assert (run.model_dir / "model.onnx").read_bytes() == NETWORK


def test_a_whole_one_stays(run: RunFolder) -> None:
    keep(run)
    before = (run.model_dir / "model.onnx").stat().st_ino
    keep(run)
    assert (run.model_dir / "model.onnx").stat().st_ino == before
