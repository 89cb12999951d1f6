"""The file of a run's winner: the kernel that won, where it is to be found, beside its record."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.app.cli import run as command
from tests.cluster.app.driver.real_run import database

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

GOLDEN = Path(__file__).resolve().parents[4] / "golden" / "run"


def copied(which: str, folder: Path) -> Path:
    """A run of the first version."""
    shutil.copytree(GOLDEN / which, folder / which)
    return folder / which


def hashes(file: Path) -> list[str]:
    """Of the programs that a file rebuilds, the default schedule's last."""
    flags = ["--json", "--compile-only"]
    done = subprocess.run(
        [sys.executable, "-I", str(file), *flags], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    assert told["wrong"] == []
    return list(told["hashes"])


def test_the_winner_is_written_with_what_was_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copied("static", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert command(["best", str(run), "--json"]) == 0
    (best,) = json.loads(capsys.readouterr().out)["tasks"]
    assert command(["reproduce", str(run), "gemm"]) == 0
    assert capsys.readouterr().out == (
        "wrote reproduce_gemm.py: run it with `python reproduce_gemm.py` wherever TVM is "
        "installed\n"
    )
    text = (tmp_path / "reproduce_gemm.py").read_text()
    recorded = re.search(r"'latency_s': (\S+),\s*'default_s': (\S+),", text)
    assert recorded is not None
    times_ms = [float(seconds) * 1e3 for seconds in recorded.groups()]
    assert times_ms == pytest.approx([best["latency_ms"], best["default_ms"]])
    for line in best["trace"].splitlines():
        assert f"#   {line}\n" in text
    compile(text, "reproduce_gemm.py", "exec")


@pytest.mark.long
def test_a_shape_gets_the_kernel_that_serves_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, file = copied("dynamic", tmp_path), tmp_path / "file.py"
    name = "fused_matmul_add_relu"
    assert command(["reproduce", str(run), name, "-o", str(file), "--shape", "T_x16=37"]) == 0
    assert "'shape': {'T_x16': 37}" in file.read_text()
    assert "'latency_s': None" in file.read_text()
    assert hashes(file) == ["kernel", "default"]
    assert command(["reproduce", str(run), name, "-o", str(file)]) == 0
    assert "'latency_s': None" not in file.read_text()
    assert command(["reproduce", str(run), name, "-o", str(file), "--shape", "T=3"]) == 0
    assert "'shape': {'T_x16': 48}" in file.read_text()
    capsys.readouterr()
    for shape in (["--shape", "M=1"], ["--shape", "T=3", "--shape", "M=1"]):
        assert command(["reproduce", str(run), name, "-o", str(file), *shape]) == 1
        said = "--shape: fused_matmul_add_relu has 16 * T: give one size of each of T"
        assert said in capsys.readouterr().err


def test_what_cannot_be_reproduced_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, file = copied("static", tmp_path), tmp_path / "file.py"

    def refused(*flags: str) -> tuple[int, str]:
        code = command(["reproduce", *flags, "-o", str(file)])
        assert not file.exists()
        return code, capsys.readouterr().err

    assert refused(str(run), "other") == (
        1,
        "tuner: this run has no task other: `tuner status` lists its tasks\n",
    )
    code, err = refused(str(run), "gemm", "--shape", "T=1")
    assert (code, err) == (
        1,
        "tuner: --shape: gemm has no symbolic dimension\n",
    )
    assert refused(str(run), "gemm", "--shape", "T=1,2")[0] == 2
    with sqlite3.connect(database(run)) as db:
        db.execute("UPDATE record SET code_hash = 'another'")
    code, err = refused(str(run), "gemm")
    assert code == 1
    assert "the record of gemm is of program another, and rebuilds as " in err
