"""The wheel: everything of the four packages and nothing else, installed by pip, and it works.

The environment that it is installed into sees the packages that are here, but not the checkout.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tuner import __version__

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("tuner", "spaces", "actors", "cluster")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def run(
    *words: str | Path, cwd: Path, codes: tuple[int, ...] = (0,), timeout_s: float = 300
) -> str:
    """What a program prints, which knows no more of this checkout than a user's would."""
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**plain, "PIP_NO_INPUT": "1", "PIP_NO_INDEX": "1"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode in codes, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools leaves things behind, and takes up what it left before."""
    source = tmp_path_factory.mktemp("source")
    for name in (*PACKAGES, "tests", "examples", "benchmarks/coverage"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    out = tmp_path_factory.mktemp("wheel")
    run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", out, source, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment's programs, with the wheel in it."""
    home = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    python = home / "bin" / "python"
    run(*PIP, "--python", python, "install", "--no-deps", "--no-compile", wheel, cwd=home)
    (site,) = (home / "lib").glob("python*/site-packages")
    # Of a folder that a .pth names its own .pth files are not read: no way to the checkout.
    (site / "packages_that_are_here.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


def files_of(package: str) -> set[str]:
    found = (ROOT / package).rglob("*")
    return {
        str(path.relative_to(ROOT))
        for path in found
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_it_has_every_file_of_the_packages_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == set.union(*map(files_of, PACKAGES))
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert {"cluster/configs/aws-gpu.yaml", "cluster/configs/Dockerfile"} <= names
    assert {f"tuner/cost_models/shipped/llvm-{bits}.json" for bits in (256, 512)} <= names


def test_its_metadata_is_that_of_the_project(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
        entries = archive.read(metadata.replace("METADATA", "entry_points.txt")).decode()
    assert {f"Version: {__version__}", "License-Expression: Apache-2.0"} <= set(lines)
    assert EntryPoint("tuner", "cluster.app.cli:main", "console_scripts").value in entries


def test_its_own_code_is_what_runs(installed: Path, tmp_path: Path) -> None:
    asked = (
        "import tuner, spaces, actors, cluster as c; print(*map(str, (tuner.__file__, c.__file__)))"
    )
    for file in run(installed / "python", "-c", asked, cwd=tmp_path).split():
        assert Path(file).is_relative_to(installed.parent)


def test_the_console_script_answers(installed: Path, tmp_path: Path) -> None:
    tuner = installed / "tuner"
    assert run(tuner, "--version", cwd=tmp_path).strip() == f"tuner, version {__version__}"
    assert "  doctor " in run(tuner, "--help", cwd=tmp_path)


@pytest.mark.tvm
@pytest.mark.ray
@pytest.mark.long
def test_it_looks_at_the_machine_and_tunes(installed: Path, tmp_path: Path) -> None:
    tuner = installed / "tuner"
    said = json.loads(run(tuner, "doctor", "--json", cwd=tmp_path, codes=(0, 1)))
    found = {check["name"]: check["level"] for check in said["checks"]}
    assert said["ok"]
    assert {f["name"]: f["ok"] for f in said["features"]}["build the docs"]
    assert found["pins"] == found["pickling"] == found["ray"] == "ok"
    shutil.copy(ROOT / "examples" / "gemm.py", tmp_path)
    budget = ("--trials", "8", "--target", "llvm", "--run", "first")
    sizes = ("--arg", "m=64", "--arg", "n=48", "--arg", "k=32")
    run(tuner, "tune", "gemm.py:gemm", *sizes, *budget, cwd=tmp_path)
    run(tuner, "export", "first", "--lib", "gemm.so", cwd=tmp_path)
    assert (tmp_path / "gemm.so").stat().st_size > 0
