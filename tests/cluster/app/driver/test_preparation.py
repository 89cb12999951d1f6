"""The steps before a search run in a process of their own."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

import pytest

from cluster.app.driver.preparation import Preparation
from spaces.frontends.model import load_model
from tuner.errors import TunerError, UsageError
from tuner.request.model_spec import ModelSpec
from tuner.request.options import TuneOptions
from tuner.run_location import RunLocation

pytestmark = pytest.mark.tvm

MODELS = """
import os, signal, time
from tvm import te

def small(end: str = ""):
    if end == "crash":
        print("last words", flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if end == "wait":
        time.sleep(3600)
    print("read by", os.getpid())
    x = te.placeholder((8, 8), name="x")
    return [x, te.compute((8, 8), lambda i, j: x[i, j] * 2, name="y")]
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "models.py").write_text(MODELS)
    return f"{tmp_path / 'models.py'}:small"


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where its logs are: none is left but of a crash."""
    folder = tmp_path / "logs"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def begin(model: str, folder: Path, **args: str) -> Preparation:
    spec = ModelSpec(model, args=tuple(args.items()))
    run = RunLocation.of(folder / "run")
    return Preparation(TuneOptions(spec, target="llvm", trials=8), run)


def test_another_process_reads_the_model_and_what_it_prints_is_shown(
    model: str, tmp_path: Path, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with begin(model, tmp_path) as preparation:
        preparation.fail_fast(60.0)
        job = preparation.finish(threading.Event())
    assert [task.name for task in job.tasks] == ["main"]
    said = capsys.readouterr().err
    assert said.startswith("read by ")
    assert int(said.split()[-1]) != os.getpid()
    assert not [*logs.iterdir()]


def test_a_crash_is_one_line_that_names_its_log(model: str, tmp_path: Path, logs: Path) -> None:
    with begin(model, tmp_path, end="crash") as preparation, pytest.raises(TunerError) as caught:
        preparation.finish(threading.Event())
    said = str(caught.value)
    assert "\n" not in said
    assert "killed by SIGSEGV" in said
    (log,) = logs.iterdir()
    assert said.endswith(str(log))
    assert "last words" in log.read_text()


def test_what_a_user_can_mend_keeps_its_kind(model: str, tmp_path: Path, logs: Path) -> None:
    with begin(model, tmp_path, begin="now") as preparation:
        with pytest.raises(TunerError, match="no such argument") as early:
            preparation.fail_fast(60.0)
        with pytest.raises(TunerError) as late:
            preparation.finish(threading.Event())
    assert str(early.value) == str(late.value)
    spec = ModelSpec(f"{model}", weights=tmp_path / "weights.json")
    refused = Preparation(TuneOptions(spec), RunLocation.of(tmp_path / "run"))
    with refused, pytest.raises(UsageError, match="--weights"):
        refused.finish(threading.Event())
    assert not [*logs.iterdir()]


def test_a_defect_is_none_of_the_users_errors(model: str, tmp_path: Path) -> None:
    run = RunLocation.of(tmp_path / "run")
    begun = Preparation(TuneOptions(ModelSpec(model)), run, tarket="llvm")
    with begun, pytest.raises(RuntimeError, match=r"TypeError: .*tarket") as caught:
        begun.finish(threading.Event())
    assert "Traceback" in caught.value.__notes__[0]


def test_a_stop_ends_the_wait_and_the_process(model: str, tmp_path: Path, logs: Path) -> None:
    stop = threading.Event()
    with begin(model, tmp_path, end="wait") as preparation:
        preparation.fail_fast(60.0)
        stop.set()
        with pytest.raises(KeyboardInterrupt):
            preparation.finish(stop)
    assert not [*logs.iterdir()]


def test_a_model_from_memory_is_prepared_here_and_before_anything_else(
    model: str, tmp_path: Path
) -> None:
    here = load_model(ModelSpec(model))
    options = TuneOptions(ModelSpec("mine", program=here), target="llvm", trials=8)
    begun = Preparation(options, RunLocation.of(tmp_path / "run"))
    assert (tmp_path / "run").is_dir()
    with begun:
        begun.fail_fast(60.0)
        assert begun.finish(threading.Event()).options.model == ModelSpec("mine")
