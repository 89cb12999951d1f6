"""The comparison of a run's model with its source, and who waits for it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import onnx
import pytest

from cluster.app.cli import run as run_command
from cluster.search import import_check
from cluster.search.import_check import ImportChecking, check_run
from spaces.frontends.model import load_model
from spaces.frontends.model_copy import save_model_copy
from tests.spaces.frontends.onnx.beside_onnxruntime import TARGET, parsed
from tuner.request.model_spec import ModelSpec
from tuner.request.options import TuneOptions
from tuner.run_location import RunLocation
from tuner.runs.folder import Manifest, RunFolder, open_run
from tuner.runs.import_check import ImportCheck, read_check, write_check
from tuner.runs.remote import RemoteRun, fetch
from tuner.runs.remote import begin as begin_remote

pytestmark = pytest.mark.tvm

SMALL = """
<ir_version: 8, opset_import: ["": 17]>
small (float[4, 6] x) => (float[4, 6] y) { y = Relu (x) }
"""
WRONG = ImportCheck("differs", "output y: largest error 3", ("operator Relu is the first",))


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def begin(folder: Path, proto: Any) -> tuple[TuneOptions, RunFolder]:
    folder.mkdir()
    path = folder / "model.onnx"
    onnx.save(proto, path)
    model = load_model(ModelSpec(str(path)))
    manifest = Manifest(str(path), model.content_hash, TARGET)
    run, _ = open_run(folder / "run", manifest)
    save_model_copy(model, run.model_dir)
    return TuneOptions(ModelSpec(str(path)), TARGET, time_budget_s=90.0), run


def at(run: RunFolder) -> tuple[RunLocation, RunFolder, None]:
    return RunLocation.of(run.root), run, None


def refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("it was done before")


def test_it_is_kept_in_the_run_and_for_other_runs_of_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, run = begin(tmp_path / "a", parsed(SMALL))
    check = check_run(options, *at(run))
    assert check.state == "passed"
    assert read_check(run.import_check) == check
    monkeypatch.setattr(import_check, "compare_copy", refuse)
    assert check_run(options, *at(run)) == check
    options, other = begin(tmp_path / "b", parsed(SMALL))
    assert check_run(options, *at(other)) == check == read_check(other.import_check)
    options, unlike = begin(tmp_path / "c", parsed(SMALL.replace("Relu", "Neg")))
    with pytest.raises(AssertionError):
        check_run(options, *at(unlike))


def test_a_difference_stays_one_until_the_user_waives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options, run = begin(tmp_path / "a", parsed(SMALL))
    monkeypatch.setattr(import_check, "compare_copy", lambda *_, **__: WRONG)
    assert check_run(options, *at(run)).state == "differs"
    monkeypatch.setattr(import_check, "compare_copy", refuse)
    assert check_run(options, *at(run)).state == "differs"
    run.store.touch()
    for command in ("best", "explain", "export"):
        more = ["--lib", str(tmp_path / "m.so")] if command == "export" else []
        assert run_command([command, str(run.root), *more]) == 1
        said = capsys.readouterr().err
        assert "the import is wrong: output y: largest error 3" in said
        assert said.count("\n") == 1
    waived = TuneOptions(options.model, TARGET, import_check=False)
    assert check_run(waived, *at(run)).state == "waived"
    assert run_command(["best", str(run.root)]) == 1
    assert "the import" not in capsys.readouterr().err


def test_a_session_is_told_at_once_and_nobody_waits_longer_than_he_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, run = begin(tmp_path / "a", parsed(SMALL))
    told = list[bool]()
    monkeypatch.setattr(import_check, "compare_copy", lambda *_, **__: WRONG)
    checking = ImportChecking(options, *at(run), lambda: told.append(True))
    check = checking.outcome(60.0)
    checking.close()
    assert check is not None
    assert (check.said, told) == (WRONG.said, [True])


def test_a_process_that_is_lost_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, run = begin(tmp_path / "a", parsed(SMALL))
    monkeypatch.setattr(import_check, "_CHILD", "os:abort")
    check = check_run(options, *at(run))
    assert (check.state, check.said[-17:]) == ("skipped", "killed by SIGABRT")


@pytest.mark.parametrize("right", [True, False])
def test_a_model_can_be_compared_without_a_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    right: bool,
) -> None:
    onnx.save(parsed(SMALL), tmp_path / "small.onnx")
    if not right:
        monkeypatch.setattr(import_check, "compare_copy", lambda *_, **__: WRONG)
    code = run_command(["tasks", str(tmp_path / "small.onnx"), "--check"])
    said = capsys.readouterr().out.splitlines()[-1]
    assert (code, said.split(":")[0]) == (
        (0, "the import is right") if right else (1, "the import is wrong")
    )


def test_a_damaged_file_is_none(tmp_path: Path) -> None:
    file = tmp_path / "check.json"
    assert read_check(file) is None
    write_check(file, WRONG)
    assert read_check(file) == WRONG
    file.write_text("{")
    assert read_check(file) is None


def test_a_run_at_a_url_has_it_there_for_all_machines(tmp_path: Path) -> None:
    options, run = begin(tmp_path / "a", parsed(SMALL))
    remote = RemoteRun((tmp_path / "shared").as_uri(), tmp_path / "there")
    begin_remote(remote, run.read_manifest())
    check = check_run(options, RunLocation.of(remote.url), run, None)
    assert read_check(RunFolder(fetch(remote)).import_check) == check
