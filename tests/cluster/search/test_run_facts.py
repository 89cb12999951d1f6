"""What a run is called and tagged with in MLflow."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.search.job import SearchJob
from cluster.search.run_facts import git_revision, name_run, run_tags
from tests.needed import needed
from tuner.layers import Layers
from tuner.request.model_spec import ModelSpec
from tuner.request.options import TuneOptions
from tuner.run_location import RunLocation
from tuner.source import Source

pytestmark = [pytest.mark.ray, pytest.mark.tvm]

TARGET = '{"kind":"llvm","mcpu":"znver4","num-cores":8}'


def job(run: str = "runs/mine", device: str = "", layers: Layers | None = None) -> SearchJob:
    options = replace(TuneOptions(ModelSpec("models/net.onnx"), "llvm"), target=TARGET)
    folder = Path("/") / run
    made = SearchJob(options, RunLocation.of(folder), folder, (), {}, device=device)
    return made if layers is None else replace(made, layers=layers)


def git(folder: Path, *words: str) -> str:
    named = ("-c", "user.name=me", "-c", "user.email=me@here")
    done = subprocess.run(
        [needed("git"), "-C", str(folder), *named, *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_tags_say_in_short_what_was_asked_for() -> None:
    tags = run_tags(job())
    asked = {name: tags[name] for name in ("model", "target", "strategy", "effort")}
    assert asked == {
        "model": "net.onnx",
        "target": "llvm-znver4",
        "strategy": str(TuneOptions(ModelSpec("m"), "llvm").strategy),
        "effort": TuneOptions(ModelSpec("m"), "llvm").effort.name,
    }
    assert all(tags.values())


def test_a_strategy_of_the_users_is_named_with_its_version() -> None:
    theirs = Source("own.py", "class Mine: ...", "Mine")
    said = run_tags(job(layers=Layers(strategy=theirs)))["strategy"]
    assert "Mine" in said
    assert theirs.version in said


def test_a_run_has_the_name_of_its_folder_and_of_the_run_whose_part_it_is() -> None:
    assert name_run(job()) == "mine"
    part = job("runs/mine/cpu-znver4-8-threads", device="cpu znver4, 8 threads")
    assert name_run(part) == "mine/cpu-znver4-8-threads"


def test_the_revision_is_that_of_the_checkout_and_tells_of_changes(tmp_path: Path) -> None:
    assert git_revision(tmp_path) == ""  # as where it is installed
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-qm", "first")
    git(tmp_path, "tag", "v1")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert git_revision(tmp_path) == commit
    (tmp_path / "file").write_text("two")
    assert git_revision(tmp_path) == f"{commit}-dirty"


def test_where_git_is_missing_there_is_no_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_revision(tmp_path) == ""
