"""A space that a user declares, searched on a real cluster by workers that have only its text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cluster.app.tune import tune
from tests.cluster.output import output_of
from tuner.errors import UsageError
from tuner.request.model_spec import ModelSpec
from tuner.request.options import TuneOptions
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import SpaceSource

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "mixed_space.py"
TRIALS = 20


def done(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of the example's run, and what it printed."""
    folder = tmp_path_factory.mktemp("mixed")
    found = done(str(EXAMPLE), "--trials", str(TRIALS), "--run", "run", cwd=folder)
    assert found.returncode == 0, found.stderr[-2000:]
    return folder, found.stdout


@pytest.fixture
def run(shown: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The example's run, where nobody can import the example."""
    monkeypatch.setitem(sys.modules, "examples.mixed_space", None)
    return str(shown[0] / "run")


@pytest.mark.long
def test_the_example_says_which_style_won(shown: tuple[Path, str]) -> None:
    *styles, last = shown[1].splitlines()
    assert last == f"{styles[0].split()[0]} won."
    assert {line.split()[0].partition("@")[0] for line in styles} >= {
        "declared:by_hand",
        "declared:tiles",
        "declared:rules",
    }


@pytest.mark.long
def test_each_space_was_tried_under_one_budget(shown: tuple[Path, str], run: str) -> None:
    report = json.loads(output_of("status", run, "--json"))
    spaces = {row["space"].partition("@")[0]: row for row in report["spaces"]}
    assert sum(row["trials"] for row in spaces.values()) == report["trials"] == TRIALS
    assert spaces["declared:by_hand"]["trials"] == 1
    with closing(SqliteStore(shown[0] / "run" / "records.sqlite", read_only=True)) as store:
        timed = {r.trial.candidate.space for r in store.scan() if r.latency_s and not r.trial.rung}
    assert {row["space"] for row in spaces.values() if row["best_ms"]} == timed
    assert sorted(name for row in spaces.values() for name in row["won"]) == ["main"]


@pytest.mark.long
def test_the_run_is_of_use_without_the_file(run: str, tmp_path: Path) -> None:
    """Its winner is shown and compiled, though nothing imports the example any more."""
    (task,) = json.loads(output_of("best", run, "--json"))["tasks"]
    spaces = json.loads(output_of("status", run, "--json"))["spaces"]
    assert task["space"] in {row["space"] for row in spaces}
    said = output_of("explain", run)
    assert said.startswith("# main: ")
    assert "  loops    " in said
    library = tmp_path / "model.so"
    output_of("export", run, "--lib", str(library))
    assert library.exists()


IN_PLACE = """
import tuner
from examples.mixed_space import in_tiles, program
from tuner import space


def made(rows):
    def tiles_of_rows(sch):
        in_tiles(sch, [None, rows], [None, 32])
    return space.manual(tiles_of_rows)


result = tuner.tune(program(), space=made(4), target="llvm", trials=2, run="run")
print(sorted(row["space"].partition("@")[0] for row in result.spaces))
"""


@pytest.mark.long
def test_a_space_that_no_file_has_is_searched_on_this_machine(tmp_path: Path) -> None:
    found = done("-c", IN_PLACE, cwd=tmp_path)
    assert found.returncode == 0, found.stderr[-2000:]
    assert found.stdout.splitlines()[-1] == "['declared:tiles_of_rows', 'default']"


def test_a_space_that_no_file_has_is_refused_on_a_cluster() -> None:
    mine = SpaceSource("<program>", "", "SPACE", pickled=True)
    with pytest.raises(UsageError, match="on a cluster other machines must be able to find it"):
        tune(TuneOptions(ModelSpec("m.onnx"), space=mine, address="127.0.0.1:1"))
