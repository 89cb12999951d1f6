"""A shell completes half-typed commands: flags, values, runs and their tasks, and quietly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from cluster.app.cli import cli, run
from cluster.app.commands.completion import SHELLS
from tuner.storage.facts import Tasks
from tuner.storage.sqlite_file import task_names
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task

ROOT = Path(__file__).resolve().parents[4]
TASKS = ("fused_conv2d_relu", "fused_conv2d_add", "softmax")
HEAVY = {"tvm", "ray", "mlflow", "xgboost", "numpy", "onnx", "torch", "fsspec"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where someone works who has two runs, and folders and files beside them."""
    for name in ("runs/first", "runs/final", "elsewhere/fifth"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "run.json").write_text("{}")
    (tmp_path / "runs" / "no-run").mkdir()
    (tmp_path / "model.onnx").write_text("")
    with closing(SqliteStore(tmp_path / "runs" / "first" / "records.sqlite")) as store:
        tasks = [Task(name, name, "{}", '{"kind":"llvm"}', 1.0, 1.0) for name in TASKS]
        store.put(Tasks(tasks))
    return tmp_path


@pytest.fixture
def bash(folder: Path) -> Callable[..., list[str]]:
    """What bash would offer where a line ends, with the script that `tuner completion` prints."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "tuner").write_text(f'#!/bin/sh\nexec {sys.executable} -m tuner "$@"\n')
    (programs / "tuner").chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}

    def offered(*words: str) -> list[str]:
        text = """
            eval "$(tuner completion bash)"
            complete -p tuner > /dev/null || exit 3
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            compopt() { echo "left to bash: $2"; }
            _tuner_completion tuner "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            printf '%s\\n' "${COMPREPLY[@]}"
        """
        done = subprocess.run(
            ["bash", "--norc", "-c", text, "bash", "tuner", *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return [line for line in done.stdout.splitlines() if line]

    return offered


def test_bash_completes_a_half_typed_command(bash: Callable[..., list[str]]) -> None:
    assert bash("sta") == ["status"]
    assert bash("best", "runs/first", "--task", "fused") == [*TASKS[:2]]
    assert bash("tasks", "mod") == ["left to bash: default"]


def offers(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> list[str]:
    from click.shell_completion import ShellComplete

    monkeypatch.chdir(folder)
    *typed, last = words
    shell = ShellComplete(cli, {}, "tuner", "_TUNER_COMPLETE")
    items = shell.get_completions(list(typed), last)
    return [item.value if item.type == "plain" else f"<{item.type}>" for item in items]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("status ", ["runs/final", "runs/first"]),
        ("status runs/fir", ["runs/first"]),
        ("export elsewhere/", ["elsewhere/fifth"]),
        ("status runs/no", ["<dir>"]),
        ("status s3://bucket/r", []),
        ("diff runs/first runs/fin", ["runs/final"]),
        ("tune --run runs/fi", ["runs/final", "runs/first"]),
        ("best runs/first --task s", ["softmax"]),
        ("best runs/final --task s", []),
        ("best s3://bucket/run --task s", []),
        ("best --task s", []),
        ("explain runs/first fused_conv2d_a", ["fused_conv2d_add"]),
        ("verify runs/first --task s", ["softmax"]),
        ("reproduce runs/first s", ["softmax"]),
        ("tune --target ", ["auto", "llvm", "cuda"]),
        ("tune --effort n", ["normal"]),
        ("tune --strategy r", ["random", "replay-function"]),
        ("tune --space my", ["<file>"]),
        ("completion ", list(SHELLS)),
        ("export runs/first --al", ["--allow-external"]),
    ],
)
def test_what_is_offered(
    folder: Path, monkeypatch: pytest.MonkeyPatch, line: str, wanted: list[str]
) -> None:
    assert offers(monkeypatch, folder, *line.split(" ")) == wanted


def test_nothing_heavy_is_imported_for_it(folder: Path) -> None:
    program = """
import sys
from cluster.app.cli import run
try:
    run([])
finally:
    print("imported", *sorted({name.partition(".")[0] for name in sys.modules}))
"""
    line = "tuner best runs/first --task fused"
    asked = {"_TUNER_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": "4"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, **asked, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    *offered, imported = done.stdout.splitlines()
    assert offered == [f"plain,{name}" for name in TASKS[:2]]
    assert "sqlite3" in imported.split()
    assert HEAVY & set(imported.split()) == set()


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_TUNER_COMPLETE={shell}_complete" in script
    assert "tuner" in script


def test_a_shell_that_is_not_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err


def test_without_a_shell_one_line_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion"]) == 2
    said, _ = capsys.readouterr().err.splitlines()
    assert said == "tuner completion: Missing argument 'SHELL'. Name bash, zsh or fish."


def test_a_file_that_is_no_record_of_a_run_has_no_names(tmp_path: Path) -> None:
    assert task_names(tmp_path / "missing") == []
    (tmp_path / "torn").write_bytes(b"no database at all")
    assert task_names(tmp_path / "torn") == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["torn"]


def test_names_are_read_while_someone_writes(folder: Path) -> None:
    records = folder / "runs" / "first" / "records.sqlite"
    with closing(SqliteStore(records)):
        assert task_names(records) == list(TASKS)
