"""The wheel's own validation of a database passes on an export of ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.app.driver.export import export_database
from tests.cluster.app.passes.made_run import made_run
from tests.compatibility.database_programs import TARGET, by_template

pytestmark = [pytest.mark.tvm]

NETWORK = """
def network():
    from tvm import IRModule
    from tests.compatibility.database_programs import program

    return IRModule({"main": program("plain").with_attr("global_symbol", "main")})
"""
SCRIPT = "tvm.s_tir.meta_schedule.testing.validate_database"
MENDED = f"""
import runpy, sys
sys.modules["torch"] = None  # TVM would import it
from tvm.runtime import Executable

# The script of TVM 0.27 times what `tvm.compile` gives as if that were still a module.
Executable.entry_name = "main"
Executable.time_evaluator = lambda self, *args, **more: self.jit().time_evaluator(*args, **more)
runpy.run_module("{SCRIPT}", run_name="__main__", alter_sys=True)
"""
LIGHT = """
import sys, types

sys.modules["torch"] = None  # TVM would import it
name = "tvm.s_tir.tensor_intrin"
sys.modules[name] = types.ModuleType(name)
sys.modules[name].__path__ = []
"""
"""Spares the script and each of its workers the intrinsics, a quarter of a minute of reading."""


def validated(database: Path, light: Path) -> str:
    """What the script prints of a database."""
    (light / "sitecustomize.py").write_text(LIGHT)
    done = subprocess.run(
        [
            *(sys.executable, "-c", MENDED),
            *("--work-dir", str(database), "--target", TARGET, "--baseline-target", TARGET),
            *("--cpu-flush", "False", "--number", "1", "--min-repeat-ms", "1"),
        ],
        env={**os.environ, "PYTHONPATH": str(light)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_wheel_s_validation_passes_on_an_export_of_ours(tmp_path: Path) -> None:
    run = made_run(tmp_path, NETWORK, TARGET, by_template)
    export_database(run, tmp_path / "database")
    said = validated(tmp_path / "database", tmp_path)
    records = int(re.findall(r"Total (\d+) records to be validated", said)[0])
    results = re.findall(r"checked, result: +([a-z ]+),", said)
    assert records
    assert results == ["pass"] * records, said[-2000:]
    assert "Validation finished!" in said
