"""Where TVM has its CUDA runtime it compiles kernels while it builds: by us, for the run's target.

The runtime is TVM's own, loaded beside a driver that is none, in a process of its own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.needed import needs_nvcc
from tests.spaces.targets.nvidia.fake_driver import H100, fake_driver

pytestmark = [
    pytest.mark.tvm,
    pytest.mark.skipif(sys.platform != "linux", reason="the runtime of TVM's wheel for Linux"),
]

PROGRAM = """
import ctypes, json, sys
from pathlib import Path

driver, folder = sys.argv[1], Path(sys.argv[2])
ctypes.CDLL(driver, mode=ctypes.RTLD_GLOBAL)
from spaces.ir.lean_tvm import import_tvm_lean
import_tvm_lean()
import tvm
from spaces.codegen.artifact import build_artifact, load_artifact
from spaces.codegen.cuda import compile
from spaces.codegen.cuda.packing import forms_of_kernels
from spaces.codegen.executable import compile_module, export_library
from spaces.ir.cuda_runtime import why_no_runtime
from spaces.lowering.lower import lower
from tests.spaces.codegen.cuda.test_packing import CUDA, gelu, packed, scheduled

compile.find_nvrtc = lambda *_: None  # it looks at the driver, too
said = {"why": why_no_runtime()}
executable = compile_module(lower(gelu(), CUDA), CUDA)
said["forms"] = forms_of_kernels(packed(executable))
export_library(executable, folder / "net.so")
said["source"] = b"__global__" in (folder / "net.so").read_bytes()

def refuse(*_):
    raise RuntimeError("it is compiled when it is loaded")

before = compile._compile.cache_info().misses
artifact = build_artifact(scheduled(), CUDA)
said["compiled"] = compile._compile.cache_info().misses - before
compile.call_nvcc = refuse
library = tvm.runtime.load_module(str(folder / "net.so"))
said["loaded"] = [library.kind, load_artifact(artifact).kind]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("runtime")
    driver = fake_driver(folder, H100, more=missing_of(folder), soname=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, driver, str(folder)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def missing_of(folder: Path) -> list[str]:
    """The driver's functions that TVM's runtime has to find, and that the fake one lacks."""
    import tvm

    runtime = Path(str(tvm.__file__)).parent / "lib" / "libtvm_runtime_cuda.so"
    listed = ["nm", "-D", "--undefined-only", str(runtime)]
    wanted = re.findall(r" (cu[A-Z]\w*)", subprocess.check_output(listed, text=True))
    plain = fake_driver(folder, H100, soname=True)
    has = subprocess.check_output(["nm", "-D", "--defined-only", plain], text=True)
    return sorted(set(wanted) - set(re.findall(r" (cu[A-Z]\w*)", has)))


@needs_nvcc
def test_the_runtime_of_the_package_brings_tvm_s_own(said: dict[str, Any]) -> None:
    assert said["why"] == ""


@needs_nvcc
def test_kernels_are_machine_code_when_they_are_built_and_exported(said: dict[str, Any]) -> None:
    assert said["forms"] == ["cubin"]
    assert said["source"] is False


@needs_nvcc
def test_they_are_compiled_once_and_not_when_they_are_loaded(said: dict[str, Any]) -> None:
    assert said["compiled"] == 1
    assert said["loaded"] == ["relax.VMExecutable", "library"]
