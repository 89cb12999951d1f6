"""No test is left out in silence where everything is to be tested."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.needed import (
    NOTHING_SKIPPED,
    needed,
    needed_nvcc,
    needed_package,
    needs_nvcc,
    with_cuda_programs,
)

ROOT = Path(__file__).resolve().parents[1]
MISSING = "no-such-program-of-debian"
PACKAGE = "no_such_package"
WANTS = [
    pytest.param(lambda: needed(MISSING), f"apt-get install .*{MISSING}", id="program"),
    pytest.param(lambda: needed_package(PACKAGE), f"{PACKAGE} is missing: make env", id="package"),
    pytest.param(needed_nvcc, "nvcc is missing: make env", id="nvcc"),
]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without programs."""
    from spaces.codegen.cuda import nvcc

    monkeypatch.setenv("PATH", str(tmp_path))
    for home in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(home, raising=False)
    monkeypatch.setattr(nvcc, "find_packaged_nvcc", lambda: None)
    monkeypatch.setattr(nvcc, "_USUAL", tmp_path)


def test_one_that_is_there_is_found() -> None:
    assert Path(needed("sh")).name == "sh"
    assert needed_package("re") is re


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("want", "says"), WANTS)
def test_a_test_is_skipped_without_what_it_needs(
    want: Callable[[], object], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NOTHING_SKIPPED, raising=False)
    with pytest.raises(pytest.skip.Exception, match=says) as skipped:
        want()
    assert skipped.value.allow_module_level


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("want", "says"), WANTS)
def test_it_fails_where_nothing_may_be_skipped(
    want: Callable[[], object], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NOTHING_SKIPPED, "1")
    with pytest.raises(pytest.fail.Exception, match=says):
        want()


def test_a_package_that_lacks_another_is_not_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(NOTHING_SKIPPED, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "half_a_package.py").write_text(f"import {PACKAGE}\n")
    with pytest.raises(ModuleNotFoundError, match=PACKAGE):
        needed_package("half_a_package")


def test_the_packages_of_the_cuda_compiler_come_first() -> None:
    before = os.pathsep.join(["/somewhere/bin", "/usr/bin"])
    after = with_cuda_programs(before)
    assert after.endswith(before)
    assert with_cuda_programs(after) == after
    found = shutil.which("nvcc", path=after)
    if after != before:
        assert found is not None
        assert Path(found).is_relative_to(sys.prefix)
        assert shutil.which("nvcc") == found, "tests and what they start see another"
    elif os.environ.get(NOTHING_SKIPPED):
        pytest.fail("nvidia-cuda-nvcc is not installed")


HALVES = """
#include <cuda_fp16.h>
extern "C" __global__ void add(half* a, const half* b) { a[threadIdx.x] += b[threadIdx.x]; }
"""


@needs_nvcc
def test_the_packages_are_all_that_a_kernel_takes(tmp_path: Path) -> None:
    source, cubin = tmp_path / "add.cu", tmp_path / "add.cubin"
    source.write_text(HALVES)
    compiles = ["nvcc", "--cubin", "--gpu-architecture=sm_80", "-o", str(cubin), str(source)]
    subprocess.run(compiles, check=True, timeout=120)
    assembly = subprocess.check_output(["cuobjdump", "-sass", str(cubin)], text=True, timeout=60)
    assert re.search(r"Function : add\b.*\bHADD2", assembly, re.DOTALL)


def test_continuous_integration_skips_nothing_and_installs_all_that_tests_need() -> None:
    steps = (ROOT / ".ci" / "run").read_text()
    assert f"export {NOTHING_SKIPPED}=1" in steps
    wanted = (".ci/install-debian", 'wait "$programs"', "export", "make test")
    order = [steps.index(f"\n{step}") for step in wanted]
    assert order == sorted(order)
    (marks,) = re.findall(r'^make test .*TESTS="(.*)"$', steps, re.MULTILINE)
    assert marks == "not gpu and (debian or not long)"
    (installed,) = re.findall(
        r"^PROGRAMS=\(([\w -]+)\)", (ROOT / ".ci" / "install-debian").read_text(), re.MULTILINE
    )
    asked = {
        name
        for file in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r'\bneeded\("([\w-]+)"\)', file.read_text())
    }
    assert "prometheus" in asked
    assert asked - {"sh", "make"} <= set(installed.split())


@pytest.mark.parametrize(
    ("goals", "extras"),
    [
        ("demo", "ui,onnxruntime"),
        ("env fast check test debian slow fuzz docs", "tests,ui,onnxruntime"),
    ],
)
def test_the_demo_installs_nothing_of_what_only_tests_need(goals: str, extras: str) -> None:
    make = [needed("make"), "--dry-run", "--always-make", "--no-print-directory"]
    for goal in goals.split():
        said = subprocess.check_output(
            [*make, goal], cwd=ROOT, env={**os.environ, "MAKEFLAGS": ""}, text=True, timeout=60
        )
        assert re.findall(r"--editable '\.\[([\w,]+)\]'", said) == [extras], goal
